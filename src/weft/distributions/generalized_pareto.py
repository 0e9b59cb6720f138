"""`GeneralizedPareto`, under PyTorch's import path."""

from weft.distributions._interval import GeneralizedPareto as GeneralizedPareto
