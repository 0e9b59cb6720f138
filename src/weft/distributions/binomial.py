"""`Binomial`, under PyTorch's import path."""

from weft.distributions._counts import Binomial as Binomial
