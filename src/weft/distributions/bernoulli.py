"""`Bernoulli`, under PyTorch's import path."""

from weft.distributions._counts import Bernoulli as Bernoulli
