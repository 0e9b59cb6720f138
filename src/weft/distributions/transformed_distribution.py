"""`TransformedDistribution`, under PyTorch's import path."""

from weft.distributions._nested import TransformedDistribution as TransformedDistribution
