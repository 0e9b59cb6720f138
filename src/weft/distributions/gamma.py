"""`Gamma`, under PyTorch's import path."""

from weft.distributions._gamma import Gamma as Gamma
