"""`LogisticNormal`, under PyTorch's import path."""

from weft.distributions._normal_vectors import LogisticNormal as LogisticNormal
