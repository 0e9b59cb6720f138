"""`Kumaraswamy`, under PyTorch's import path."""

from weft.distributions._transformed import Kumaraswamy as Kumaraswamy
