"""Exponentials and logarithms by bits and polynomials, where XLA's lose digits or, in float64, are slow on CPUs.

All steps are in float64. Float32 numbers need fewer terms, and come out rounded once. Float64 results are a number and
a smaller correction, so they are rounded by little more than half an ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from weft.ops import _fits as fits
from weft.ops._smooth import Array, polynomial, with_slope

_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-1, 1.90821492927058770002e-10
"""`log(2)` as a sum: products of the first number with whole ones are exact."""
_BIAS, _FRACTION = 1023, 52
_ROOT_BITS = int(np.float64(math.sqrt(0.5)).view(np.int64))


def by_type(function: Callable[[Array, bool], Array]) -> Callable[[Array], Array]:
    """A function of float64 numbers and whether a result of float32's precision is enough, for both types."""

    def typed(x: Array) -> Array:
        return function(x.astype(jnp.float64), x.dtype != jnp.float64).astype(x.dtype)

    return typed


def power_of_2(k: Array) -> Array:
    """`2**k` of whole numbers, for normal results: the exponent's bits are the last ones of a large float."""
    return lax.bitcast_convert_type(
        lax.bitcast_convert_type(k + (2.0**_FRACTION + _BIAS), jnp.int64) << _FRACTION, jnp.float64
    )


def scaled(x: Array, k: Array) -> Array:
    """`x * 2**k`, in two steps, since the power alone may overflow."""
    half = jnp.floor(k / 2)
    return x * power_of_2(half) * power_of_2(k - half)


def three_summed(a: Array | float, b: Array, c: Array) -> Array:
    """`a + b + c` for falling sizes, rounded about once."""
    total = a + b
    return total + ((a - total) + b + c)


def head(x: Array) -> Array:
    """The first half of the digits, whose products are exact."""
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int64) & -(1 << 27), jnp.float64)


def exp_parts(x: Array, low: Array | float, short: bool) -> tuple[Array, Array, Array]:
    """`k`, `r` and `q` with `exp(x + low) = 2**k * (1 + r + q)` for a small `low`; `|r| < 0.35` and `|q| < 0.07`."""
    k = jnp.round(x * (1 / math.log(2)))
    r = x - k * _LOG2_HIGH
    low = low - k * _LOG2_LOW
    near = r + low
    return k, r, near * near * polynomial((fits.EXP_SHORT if short else fits.EXP)[0], near) + low


@by_type
def _exp2(x: Array, short: bool) -> Array:
    """A whole power of two, times one between the roots of 1/2 and 2."""
    x = jnp.clip(x, -1100, 1024)  # where it has become 0 or infinite
    k = jnp.round(x)
    rest = x - k
    if short:
        y = rest * math.log(2)
        return power_of_2(jnp.maximum(k, -_BIAS)) * (1 + (y + y * y * polynomial(fits.EXP_SHORT[0], y)))
    first = head(rest)
    _, r, q = exp_parts(first * _LOG2_HIGH, (rest - first) * _LOG2_HIGH + rest * _LOG2_LOW, short)
    half = jnp.floor(k / 2)
    scale = power_of_2(half)
    return three_summed(scale, scale * r, scale * q) * power_of_2(k - half)


_EXP_END = 1024 * math.log(2)


def _expm1(x: Array) -> Array:
    """Of float64: `2**k (r + q) + (2**k - 1)`; half of that, since the power may overflow before the result does."""
    k, r, q = exp_parts(jnp.clip(x, -50, _EXP_END), 0, short=False)
    half = power_of_2(k - 1)
    value = 2 * three_summed(half - 0.5, half * r, half * q)
    # Zeros keep their sign, and halves of the smallest numbers would be lost.
    return jnp.where(x > _EXP_END, jnp.inf, jnp.where(jnp.abs(x) < 1e-17, x, value))


def _log_parts(x: Array) -> tuple[Array, Array]:
    """`k` and `f` with `x = 2**k * (1 + f)`, where `1 + f` is between the roots of 1/2 and 2."""
    bits = lax.bitcast_convert_type(x, jnp.int64)
    k = (bits - _ROOT_BITS) >> _FRACTION
    f = lax.bitcast_convert_type(bits - (k << _FRACTION), jnp.float64) - 1
    return k.astype(jnp.int32).astype(jnp.float64), f


def _log_sum(k: Array, f: Array, short: bool, low: Array | float = 0) -> Array:
    """`k log(2) + log(1 + f) + low` for a small `low`."""
    if short:
        return k * math.log(2) + f * polynomial(fits.LOG_SHORT[0], f)
    s = f / (2 + f)
    z, square = s * s, f * f / 2
    low = k * _LOG2_LOW + low * (1 - 2 * (s - z))  # divided by 1 + f
    return three_summed(k * _LOG2_HIGH, f, s * (square + z * polynomial(fits.LOG[0], z)) + low - square)


def log_of(x: Array, short: bool) -> Array:
    """The logarithm of a normal positive number."""
    return _log_sum(*_log_parts(x), short)


def log_anywhere(x: Array, short: bool) -> Array:
    """The logarithm, also of other numbers than normal positive ones."""
    regular = jnp.isfinite(x) & (x > 0)
    edge = jnp.where(x == 0, -jnp.inf, jnp.where(x < 0, jnp.nan, x))
    return jnp.where(regular, log_of(jnp.where(regular, x, 1), short), edge)


def log_of_sum(x: Array, low: Array) -> Array:
    """The logarithm of `x + low`, for a number that is no larger than the rounding error of `x`."""
    k, f = _log_parts(x)
    return _log_sum(k, f, False, low * power_of_2(-k))


@by_type
def _log1p(x: Array, short: bool) -> Array:
    """The logarithm of `1 + x`, and of the rounding error of this sum, which is a number below 0.001 as it is."""
    total = 1 + x
    regular = jnp.isfinite(total) & (total > 0)
    safe = jnp.where(regular, total, 1)
    if short:
        k, f = _log_parts(safe)
        value = _log_sum(k, jnp.where(jnp.abs(x) < 1e-3, x, f), True)
    else:
        value = log_of_sum(safe, jnp.where(regular, x - (safe - 1), 0))
    edge = jnp.where(total == 0, -jnp.inf, jnp.where(total < 0, jnp.nan, x))
    return jnp.where(regular & (x != 0), value, edge)  # zeros keep their sign


def complex_log1p(z: Array) -> Array:
    """The logarithm of `1 + z`. Near 0, its real part is that of `|1 + z| ** 2 - 1`, which the sum would round to 0."""
    x, y = z.real, z.imag
    excess = x * (2 + x) + y * y
    near = jnp.where(excess == 0, x, jnp.log1p(excess) / 2)  # a product that is too small for a number
    real = jnp.where(jnp.abs(z) < 0.5, near, jnp.log(jnp.hypot(1 + x, y)))
    return lax.complex(real, jnp.arctan2(y, 1 + x))


exp2 = with_slope(_exp2, lambda x: exp2(x) * math.log(2))
expm1 = with_slope(_expm1, lambda x: expm1(x) + 1)
log1p = with_slope(_log1p, lambda x: 1 / (1 + x))
log = with_slope(by_type(log_anywhere), lambda x: 1 / x)
