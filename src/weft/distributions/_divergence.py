"""Kullback-Leibler divergences: the table of pairs of classes, and how a pair is found in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from weft._base.cell import Registry
from weft._tensor.tensor import Tensor
from weft.distributions.distribution import Distribution
from weft.errors import ArgumentError, NotDefinedError

Divergence = Callable[[Any, Any], Tensor]
REGISTRY = Registry[tuple[type, type], Divergence]("the Kullback-Leibler divergences")
# no cell: a cache, keyed by all that its entries depend on; a registration clears it
_cache: dict[tuple[type, type], Divergence | None] = {}
"""What was found for a pair of classes; emptied whenever the registry changes."""


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator for the function that computes the divergence of two distributions of these classes.

    Of several pairs that fit, the most specific is used, by the class of p first; if the class of q first would give
    another, `kl_divergence` warns of it. Register the pair of classes itself to decide.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise ArgumentError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(function: Divergence) -> Divergence:
        REGISTRY[type_p, type_q] = function
        _cache.clear()
        return function

    return decorator


def _dispatched(type_p: type, type_q: type) -> Divergence | None:
    matches = [(p, q) for p, q in REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return None

    def distances(match: tuple[type, type]) -> tuple[int, int]:
        return _distance(type_p, match[0]), _distance(type_q, match[1])

    left = min(matches, key=distances)
    right = min(matches, key=lambda match: distances(match)[::-1])
    if REGISTRY[left] is not REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return REGISTRY[left]


def _distance(kind: type, base: type) -> int:
    """How far up the base class is; one that was registered with it (`abc.ABCMeta.register`) is farther than all."""
    bases = kind.__mro__
    return bases.index(base) if base in bases else len(bases)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of p from q, the mean of `log p(x) - log q(x)` over p, for each of the batch.

    Raises `NotImplementedError` if no pair is registered for their classes.
    """
    kinds = type(p), type(q)
    if kinds not in _cache:
        _cache[kinds] = _dispatched(*kinds)
    function = _cache[kinds]
    if function is None:
        raise NotDefinedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return function(p, q)
