"""Key-value stores shared by the processes of a job: in memory, in a file, or served over TCP."""
