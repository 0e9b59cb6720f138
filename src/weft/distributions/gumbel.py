"""`Gumbel`, under PyTorch's import path."""

from weft.distributions._transformed import Gumbel as Gumbel
