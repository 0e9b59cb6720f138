"""`Multinomial`, under PyTorch's import path."""

from weft.distributions._categorical import Multinomial as Multinomial
