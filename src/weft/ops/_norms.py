"""p-norms of vectors along axes, with gradients as PyTorch's where vectors are zero."""

from __future__ import annotations

from math import inf

import jax.numpy as jnp

from weft.ops._kinds import Array
from weft.ops._neural import size_of
from weft.ops._reduce import is_complex


def vector_norms(x: Array, p: float, axis: int | tuple[int, ...], *, keepdims: bool = True) -> Array:
    """The p-norms along axes; real.

    Their gradient spreads over ties, and is 0 at 0. The usual orders have formulas without powers, which take
    several times as long: `normalize` of a million numbers took five times PyTorch's time with them.
    """
    if not x.ndim:  # PyTorch lets a number have one dim
        axis = ()
    if p == 2:
        square = x.real**2 + x.imag**2 if is_complex(x.dtype) else x * x
        total = jnp.sum(square, axis=axis, keepdims=keepdims)
        zero = total == 0
        return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1, total)))
    size = size_of(x)
    if abs(p) == inf:
        return (jnp.max if p > 0 else jnp.min)(size, axis=axis, keepdims=keepdims)
    if p == 0:
        return jnp.sum((size != 0).astype(size.dtype), axis=axis, keepdims=keepdims)
    if p == 1:
        return jnp.sum(size, axis=axis, keepdims=keepdims)
    return _safe_power(jnp.sum(_safe_power(size, p), axis=axis, keepdims=keepdims), 1 / p)


def _safe_power(x: Array, p: float) -> Array:
    """`x ** p` of non-negative numbers, with a gradient of zero at zero as in PyTorch."""
    zero = x == 0
    return jnp.where(zero, 0.0 if p > 0 else inf, jnp.where(zero, 1, x) ** p)
