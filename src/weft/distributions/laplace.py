"""`Laplace`, under PyTorch's import path."""

from weft.distributions._line import Laplace as Laplace
