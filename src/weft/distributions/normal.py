"""`Normal`, under PyTorch's import path."""

from weft.distributions._line import Normal as Normal
