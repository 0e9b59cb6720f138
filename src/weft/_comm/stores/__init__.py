"""Keys and values that the processes of a job share: in memory, in a file, or served over TCP."""
