"""`Uniform`, under PyTorch's import path."""

from weft.distributions._interval import Uniform as Uniform
