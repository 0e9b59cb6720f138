"""`NegativeBinomial`, under PyTorch's import path."""

from weft.distributions._counts import NegativeBinomial as NegativeBinomial
