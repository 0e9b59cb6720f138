"""`Weibull`, under PyTorch's import path."""

from weft.distributions._transformed import Weibull as Weibull
