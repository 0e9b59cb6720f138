"""PyTorch's operators: which overload takes what, what computes it, and who is asked before."""
