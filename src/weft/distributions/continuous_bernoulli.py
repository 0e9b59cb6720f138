"""`ContinuousBernoulli`, under PyTorch's import path."""

from weft.distributions._interval import ContinuousBernoulli as ContinuousBernoulli
