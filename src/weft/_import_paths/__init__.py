"""PyTorch's import paths: modules that carry names only, from one table."""
