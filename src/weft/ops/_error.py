"""The error function, its complement and inverse, and the tails of the normal distribution."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from weft.ops import _fits as fits
from weft.ops._elementary import by_type, exp_parts, head, log_of, power_of_2, scaled
from weft.ops._smooth import Array, fitted, polynomial, with_slope


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


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """`a * b - product` (Dekker, 1971)."""
    x, y = head(a), head(b)
    return ((x * y - product) + x * (b - y) + (a - x) * y) + (a - x) * (b - y)


def upper(x: Array, factor: float, short: bool) -> Array:
    """`erfc(sqrt(factor) * x)`, from 0.8 on or, if `short`, from 0 on, with x itself in the exponential."""
    x = jnp.minimum(x, math.sqrt((105 if short else 750) / factor))  # where it underflows
    size = x * math.sqrt(factor)
    half = size / (size + 3.5)
    above = 2 * half * polynomial((fits.ERFC_SHORT if short else fits.ERFC)[0], 2 * half - 1)
    one = jnp.where(x == x, 1.0, jnp.nan)  # XLA would rewrite `(1 + x) - 1` to x
    top, bottom = one + above, one + 2 * size
    scale = top / bottom
    if short:
        k, r, q = exp_parts(-factor * (x * x), 0, short)
        return scale * (1 + (r + q)) * power_of_2(k)
    rest = (above - (top - one)) - scale * (2 * size - (bottom - one)) - _product_error(scale, bottom, top)
    high = head(x)
    k, r, q = exp_parts(-factor * (high * high), -factor * ((x - high) * (x + high)), short)
    rest = rest * scale * (1 - above * (1 - above))  # divided by `bottom`
    return scaled(scale + (rest + scale * (r + q)), k)


def _erf_excess(x: Array) -> Array:
    """`erf(x) - x` for |x| <= 1."""
    return x * polynomial(fits.ERF[0], x * x)


def _erf(x: Array) -> Array:
    """Of float64: `1 - erfc(x)` from 1 on."""
    size = jnp.abs(x)
    inside = jnp.minimum(size, 1)
    value = jnp.where(size < 1, inside + _erf_excess(inside), 1 - upper(jnp.maximum(size, 1), 1, short=False))
    return jnp.copysign(value, x)


_NEAR = 0.8  # up to which `erfc` is at least 1/4


@by_type
def _erfc(x: Array, short: bool) -> Array:
    """Of float64, by the error function near 0, as sums of which the first number is exact."""
    size = jnp.abs(x)
    far = upper(size if short else jnp.maximum(size, _NEAR), 1, short)
    far = jnp.where(x < 0, 2 - far, far)
    if short:
        return far
    inside = jnp.clip(x, -_NEAR, _NEAR)
    excess = _erf_excess(inside)
    near = jnp.where(inside < 0.25, 1 - (inside + excess), 0.5 - ((inside - 0.5) + excess))
    return jnp.where(size < _NEAR, near, far)


@by_type
def _ndtr(x: Array, short: bool) -> Array:
    """By the complementary error function and, of float64 near 0, the error function."""
    size, least = jnp.abs(x), _NEAR * math.sqrt(2)
    far = upper(size if short else jnp.maximum(size, least), 0.5, short) / 2
    far = jnp.where(x < 0, far, 1 - far)
    if short:
        return far
    inside = jnp.clip(x, -least, least) * math.sqrt(0.5)
    return jnp.where(size < least, 0.5 + (inside + _erf_excess(inside)) / 2, far)


def _density(x: Array) -> Array:
    """The derivative of the error function."""
    return 2 / math.sqrt(math.pi) * jnp.exp(-x * x)


def normal_density(x: Array) -> Array:
    """The density of the standard normal distribution."""
    return jnp.exp(-x * x / 2) / math.sqrt(2 * math.pi)


erf = with_slope(_erf, _density)
erfc = with_slope(_erfc, lambda x: -_density(x))
ndtr = with_slope(_ndtr, normal_density)


@by_type
def _erfinv(p: Array, short: bool) -> Array:
    """By `p**2` near 0, and by `sqrt(-log(1 - p**2))` near 1 (after Giles, 2012)."""
    size = jnp.abs(p)
    near = jnp.minimum(size, 0.6)
    near = near + near * fitted(fits.ERFINV_SHORT if short else fits.ERFINV, near * near)
    far = jnp.where((size > 0.59) & (size < 1), size, 0.75)
    # As a product: 1 - p**2 would cancel near 1.
    s = jnp.sqrt(-log_of((1 - far) * (1 + far), short))
    if short:
        excess = fitted(fits.ERFINV_FAR_SHORT, s)
    else:
        excess = jnp.where(s < 2.5, fitted(fits.ERFINV_MIDDLE, s - 1.6), fitted(fits.ERFINV_FAR, s - 2.5))
    edge = jnp.where(size == 1, jnp.inf, jnp.nan)
    return jnp.copysign(jnp.where(size < 0.6, near, jnp.where(size < 1, s + s * excess, edge)), p)


erfinv = with_slope(_erfinv, lambda p: math.sqrt(math.pi) / 2 * jnp.exp(erfinv(p) ** 2))
