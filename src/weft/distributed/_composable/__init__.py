"""Functions that change a module in place, under PyTorch's older path."""
