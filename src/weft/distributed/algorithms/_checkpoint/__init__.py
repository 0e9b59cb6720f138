"""Modules whose activations are recomputed or offloaded, under PyTorch's name."""
