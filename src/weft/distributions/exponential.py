"""`Exponential`, under PyTorch's import path."""

from weft.distributions._gamma import Exponential as Exponential
