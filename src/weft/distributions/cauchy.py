"""`Cauchy`, under PyTorch's import path."""

from weft.distributions._line import Cauchy as Cauchy
