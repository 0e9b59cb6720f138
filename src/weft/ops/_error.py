"""The complementary error function, scaled or not, and the inverse of the error function."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from weft.ops import _fits as fits
from weft.ops._smooth import Array, fitted, with_slope


def exp_of_square(x: Array, factor: float) -> Array:
    """`exp(factor * x**2)`; the square's rounding error is made up for, since the exponential would multiply it."""
    bits = (11, 25) if x.dtype == jnp.float64 else (8, 11)
    high = lax.reduce_precision(x, *bits)  # whose square is exact
    square = high * high
    low = jnp.where(jnp.isinf(square), 0, factor * (x - high) * (x + high))
    return jnp.exp(factor * square) * (1 + jnp.expm1(low))  # XLA would join a product of exponentials


def _erfcx(x: Array) -> Array:
    """`exp(x**2) erfc(x)`; for negative numbers by `erfc(-x) = 2 - erfc(x)` (DLMF 7.4.2)."""
    size = jnp.abs(x)
    t = jnp.where(jnp.isinf(size), 1, (size - 3.5) / (size + 3.5))
    right = (1 + (1 + t) * fitted(fits.ERFCX, t)) / (1 + 2 * size)
    negative = x < 0
    return jnp.where(negative, 2 * exp_of_square(jnp.where(negative, x, 0), 1) - right, right)


erfcx = with_slope(_erfcx, lambda x: _erfcx_slope(x))


def _erfcx_slope(x: Array) -> Array:
    return 2 * x * erfcx(x) - 2 / math.sqrt(math.pi)


def _erfc(x: Array) -> Array:
    """By `erfcx` where 1 and the error function cancel."""
    right = x > 0.5
    tail = jnp.where(right, x, 0.5)
    return jnp.where(right, exp_of_square(tail, -1) * _erfcx(tail), 1 - lax.erf(jnp.minimum(x, 0.5)))


erfc = with_slope(_erfc, lambda x: -2 / math.sqrt(math.pi) * jnp.exp(-x * x))


def _erfinv(p: Array) -> Array:
    """Of `lax`, improved by a step of Newton's, which takes the distance from 1 where that is exact."""
    start = lax.erf_inv(p)
    size, y = jnp.abs(p), jnp.abs(start)
    inside = size < 1
    y = jnp.where(inside, y, 0)
    excess = jnp.where(size < 0.5, lax.erf(y) - size, (1 - size) - _erfc(y))
    better = jnp.copysign(y - excess * (math.sqrt(math.pi) / 2) * jnp.exp(y * y), p)
    return jnp.where(inside & (p != 0), better, start)


erfinv = with_slope(_erfinv, lambda p: math.sqrt(math.pi) / 2 * jnp.exp(erfinv(p) ** 2))
