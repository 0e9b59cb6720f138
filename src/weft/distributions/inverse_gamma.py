"""`InverseGamma`, under PyTorch's import path."""

from weft.distributions._transformed import InverseGamma as InverseGamma
