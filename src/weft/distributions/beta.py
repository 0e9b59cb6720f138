"""`Beta`, under PyTorch's import path."""

from weft.distributions._dirichlet import Beta as Beta
