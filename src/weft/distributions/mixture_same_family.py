"""`MixtureSameFamily`, under PyTorch's import path."""

from weft.distributions._nested import MixtureSameFamily as MixtureSameFamily
