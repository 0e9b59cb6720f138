"""Bytes between processes: no tensors, no jax."""
