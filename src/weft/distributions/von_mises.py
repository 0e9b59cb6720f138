"""`VonMises`, under PyTorch's import path."""

from weft.distributions._line import VonMises as VonMises
