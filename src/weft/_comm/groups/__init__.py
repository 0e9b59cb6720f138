"""Groups of ranks: how they wait for each other and fail together, their messages, and collective operations."""
