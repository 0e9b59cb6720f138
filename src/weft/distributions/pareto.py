"""`Pareto`, under PyTorch's import path."""

from weft.distributions._transformed import Pareto as Pareto
