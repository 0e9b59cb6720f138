"""The parts of the loader: collation, fetching, worker processes and shared memory."""
