"""The parts of the loader: collation, fetching, worker processes, and the memory they share."""
