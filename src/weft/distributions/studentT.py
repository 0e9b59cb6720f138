"""`StudentT`, under PyTorch's import path."""

from weft.distributions._gamma import StudentT as StudentT
