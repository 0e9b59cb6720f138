"""The parts of `weft.utils.benchmark`, under PyTorch's import paths."""
