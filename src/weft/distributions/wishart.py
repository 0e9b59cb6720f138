"""`Wishart`, under PyTorch's import path."""

from weft.distributions._matrices import Wishart as Wishart
