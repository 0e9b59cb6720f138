"""Special functions of probability and number theory: the normal distribution, entropy, Hurwitz's zeta function."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy import special

from weft._base.dtype import FLOAT
from weft.ops._dims import pointwise
from weft.ops._elementary import by_type, log, log1p, log_anywhere
from weft.ops._error import erfcx, ndtr, normal_density
from weft.ops._kinds import Array, Arrays, Operand
from weft.ops._rows import function_row, in_float64, require, unbroadcast
from weft.ops._smooth import by_first, with_slope
from weft.ops._table import FLOAT_TYPE, Derivative, Public, defop

_row = partial(function_row, public=Public(module="special"))

# ---- the normal distribution

_HALF = math.sqrt(0.5)


def _log_ndtr(x: Array) -> Array:
    """By `erfcx` on the left, whose logarithm is taken apart from that of the exponential."""
    left = x < -1
    low = log(erfcx(-jnp.where(left, x, -1) * _HALF) / 2) - jnp.where(left, x * x / 2, 0)
    return jnp.where(left, low, log1p(-ndtr(-jnp.where(left, 0, x))))


def _log_ndtr_slope(x: Array) -> Array:
    """The inverse of Mills' ratio."""
    return math.sqrt(2 / math.pi) / erfcx(-x * _HALF)


log_ndtr = with_slope(_log_ndtr, _log_ndtr_slope)
ndtri = with_slope(special.ndtri, lambda p: 1 / normal_density(ndtri(p)))


@by_type
def _entropy(x: Array, short: bool) -> Array:
    inside = x > 0
    return jnp.where(inside, -x * log_anywhere(jnp.where(inside, x, 1), short), jnp.where(x < 0, -jnp.inf, x * 0))


_row("entr", with_slope(_entropy, lambda x: -1 - jnp.log(x)), "`-x log(x)`; 0 at 0, minus infinity below.", real="entr")
_row("erfcx", erfcx, "`exp(x**2) * erfc(x)`, which does not underflow.", real="erfcx")
_row("ndtr", ndtr, "The distribution function of the standard normal distribution.", real="ndtr")
_row("log_ndtr", log_ndtr, "The logarithm of `ndtr`, exact where that underflows.", real="log_ndtr")
_row("ndtri", ndtri, "Quantiles of the standard normal distribution: the inverse of `ndtr`.", real="ndtri")

# ---- functions of two numbers


def _xlog1py_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """Gradients `log1p(y)`, or 0 where x = 0 and y <= -1, and `x / (1 + y)`."""
    still = (input == 0) & (other <= -1)
    log = jnp.where(still, 0, log1p(jnp.where(still, 0, other)))
    return unbroadcast(g * log, input), unbroadcast(g * (input / (1 + other)), other)


@defop(dims=pointwise, types=FLOAT_TYPE, derivative=Derivative(vjp=_xlog1py_vjp), public=Public(module="special"))
def xlog1py(input: Operand, other: Operand) -> Array:
    """`input * log1p(other)`, and 0 where `input` is 0 unless `other` is NaN."""
    require(input, "xlog1py_cpu", FLOAT)
    zero = (input == 0) & (other == other)
    return jnp.where(zero, 0, input * log1p(jnp.where(zero, 0, other)))


_TERMS = 12
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)
"""`B(2k) / (2k)!`"""


def _zeta_by_sum(x: Array, q: Array) -> Array:
    """`zeta(x, q)` by the Euler-Maclaurin formula (DLMF 25.11.28 without its integral)."""
    x = jnp.where(x > 1, x, 2)
    first = sum(((q + k) ** -x for k in range(_TERMS)), jnp.zeros_like(x + q))
    w = q + _TERMS
    power = w**-x
    total = first + power * w / (x - 1) + power / 2
    factor = x / w
    for k, coefficient in enumerate(_BERNOULLI):
        total = total + coefficient * factor * power
        factor = factor * (x + 2 * k + 1) * (x + 2 * k + 2) / (w * w)
    return total


@jax.custom_jvp
def _zeta(x: Array, q: Array) -> Array:
    """Poles at whole numbers q <= 0; NaN for x < 1, and where a power of a negative number is none.

    For other q < 0 and whole x, the terms of negative numbers are a part of another series of positive ones.
    """
    whole = jnp.floor(q) == q
    part = jnp.floor(q) - q + 1  # what negative numbers q + k are above whole ones, counted from zero
    left = (q < 0) & ~whole
    value = _zeta_by_sum(x, jnp.where(left, 1 - part, jnp.where(q > 0, q, 1)))
    negative = _zeta_by_sum(x, jnp.where(left, part, 1)) - _zeta_by_sum(x, jnp.where(left, 1 - q, 1))
    sign = jnp.where(jnp.floor(x) == x, 1 - 2 * jnp.mod(x, 2), jnp.nan)
    value = jnp.where(left, value + sign * negative, jnp.where(q > 0, value, jnp.inf))
    return jnp.where(x == 1, jnp.inf, jnp.where(x > 1, value, jnp.nan))


@_zeta.defjvp
def _zeta_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    x, q = primals
    by_x = _zeta_slope(x, q)
    return _zeta(x, q), by_x * tangents[0] - x * _zeta(x + 1, q) * tangents[1]


def _zeta_slope(x: Array, q: Array) -> Array:
    return _slope_by_sum(x, q)


_slope_by_sum = by_first(lambda x, q: jax.jvp(lambda x: _zeta_by_sum(x, q), (x,), (jnp.ones_like(x),))[1])


@defop(dims=pointwise, types=FLOAT_TYPE, public=Public(module="special"))
def zeta(input: Operand, other: Operand) -> Array:
    """Hurwitz's zeta function: the sum of `(other + k) ** -input` over all k >= 0."""
    require(input, "zeta_cpu", FLOAT)
    return in_float64(_zeta, *jnp.broadcast_arrays(input, other))
