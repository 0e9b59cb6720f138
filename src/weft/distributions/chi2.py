"""`Chi2`, under PyTorch's import path."""

from weft.distributions._gamma import Chi2 as Chi2
