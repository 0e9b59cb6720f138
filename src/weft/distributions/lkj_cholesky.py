"""`LKJCholesky`, under PyTorch's import path."""

from weft.distributions._matrices import LKJCholesky as LKJCholesky
