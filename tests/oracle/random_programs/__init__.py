"""Random programs, written in PyTorch's words and run over PyTorch and Weft."""
