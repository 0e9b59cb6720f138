"""`HalfCauchy`, under PyTorch's import path."""

from weft.distributions._transformed import HalfCauchy as HalfCauchy
