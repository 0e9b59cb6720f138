"""`Independent`, under PyTorch's import path."""

from weft.distributions._nested import Independent as Independent
