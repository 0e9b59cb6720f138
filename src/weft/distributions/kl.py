"""Kullback-Leibler divergences, with all pairs of classes that are registered."""

from weft.distributions import _kl_families as _kl_families
from weft.distributions import _kl_mixed as _kl_mixed
from weft.distributions import _kl_vectors as _kl_vectors
from weft.distributions._divergence import REGISTRY
from weft.distributions._divergence import REGISTRY as _KL_REGISTRY  # noqa: F401  libraries look into it
from weft.distributions._divergence import kl_divergence as kl_divergence
from weft.distributions._divergence import register_kl as register_kl

REGISTRY.settle()
