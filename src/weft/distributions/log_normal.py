"""`LogNormal`, under PyTorch's import path."""

from weft.distributions._transformed import LogNormal as LogNormal
