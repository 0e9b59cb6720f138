"""Starts, monitors and restarts the processes of a job. Nothing here imports jax."""
