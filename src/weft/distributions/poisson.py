"""`Poisson`, under PyTorch's import path."""

from weft.distributions._counts import Poisson as Poisson
