"""`weft rpc top`: the status of workers, asked for by an observer outside of the job."""
