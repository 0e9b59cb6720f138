"""Groups of ranks: barriers, common failure, messages and collective operations."""
