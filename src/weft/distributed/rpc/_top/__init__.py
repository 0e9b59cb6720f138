"""`weft rpc top`: the status of workers, as an observer from outside of the job sees it."""
