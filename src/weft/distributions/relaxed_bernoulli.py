"""`LogitRelaxedBernoulli`, under PyTorch's import path."""

from weft.distributions._relaxed import LogitRelaxedBernoulli as LogitRelaxedBernoulli
from weft.distributions._relaxed import RelaxedBernoulli as RelaxedBernoulli
