"""Dropout of elements and of whole channels."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from weft.errors import ValueRangeError
from weft.ops._dims import Sizes, Static, pointwise
from weft.ops._kinds import Array, Arrays, Key, Real
from weft.ops._neural import dropout_mask, like
from weft.ops._table import INTERNAL, Check, Derivative, Shards, defop

_SELU_LIMIT = -1.7580993408473766  # of `selu` at minus infinity

_MOST = 1 - 1e-7  # what probabilities count as at most in a divisor, where they are 1 and everything is dropped


def _require_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueRangeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropout_vjp(g: Array, out: Arrays, p: Real) -> tuple[Array]:
    return (_drop(g, out[1], p),)


def _mask(shapes: Sequence[Sizes], static: Static) -> Sizes:
    whole_dims = static["whole_dims"]
    return shapes[0][: len(shapes[0]) - whole_dims] + (1,) * whole_dims


def _drop(x: Array, kept: Array, p: Real) -> Array:
    return jnp.where(kept, x * like(1 / (1 - jnp.minimum(p, _MOST)), x), jnp.zeros_like(x))


@defop(
    derivative=Derivative(vjp=_dropout_vjp, aux=1, name="Mul"),
    dims=pointwise,
    shards=Shards(drawn=_mask),
    check=Check(limits=_require_probability),
    public=INTERNAL,
)
def dropout_train(input: Array, p: Real = 0.5, whole_dims: int = 0, *, key: Key) -> tuple[Array, Array]:
    """Elements set to 0 with probability `p`, the others divided by 1 - p.

    The last `whole_dims` dims are kept or dropped as one. The second output is the mask.
    """
    split = input.ndim - whole_dims
    shape = input.shape[:split] + (1,) * whole_dims
    kept = dropout_mask(key, shape, p)
    return _drop(input, kept, p), kept


@defop(derivative=Derivative(name="Mul"), dims=pointwise, shards=Shards(drawn=_mask), public=INTERNAL)
def alpha_dropout_train(input: Array, p: Real = 0.5, whole_dims: int = 0, *, key: Key) -> Array:
    """Elements set to the limit of `selu` with probability `p`, then rescaled: mean 0 and variance 1 are preserved."""
    kept = dropout_mask(key, input.shape[: input.ndim - whole_dims] + (1,) * whole_dims, p)
    share = jnp.minimum(p, _MOST)
    scale = 1 / jnp.sqrt((1 - share) * (1 + share * _SELU_LIMIT**2))
    mixed = like(scale, input) * jnp.where(kept, input, _SELU_LIMIT) - like(scale * share * _SELU_LIMIT, input)
    return jnp.where(like(p, input) >= 1, 0, mixed)
