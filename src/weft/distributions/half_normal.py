"""`HalfNormal`, under PyTorch's import path."""

from weft.distributions._transformed import HalfNormal as HalfNormal
