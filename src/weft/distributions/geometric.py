"""`Geometric`, under PyTorch's import path."""

from weft.distributions._counts import Geometric as Geometric
