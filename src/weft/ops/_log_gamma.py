"""The logarithm of the gamma function's absolute value."""

from __future__ import annotations

import math

import jax.numpy as jnp

from weft.ops import _fits as fits
from weft.ops._elementary import by_type, log_of, log_of_sum
from weft.ops._smooth import Array, fitted, polynomial

_LOW, _HIGH = -2.0, 8.0  # between which arguments are moved to (1/2, 5/2)
_LEAST = -10.0  # where the table of zeros ends
_HALF_LOG_2_PI = math.log(2 * math.pi) / 2


@by_type
def log_gamma(x: Array, short: bool) -> Array:
    """By the recurrence between -2 and 8, and by Stirling's formula beyond. From -2 down by reflection (DLMF 5.5.3);
    of float64, by the distance from a zero, as far as the table of zeros goes.

    All of them take the logarithms of two numbers, which are chosen first.
    """
    size, low = jnp.abs(x), x < _LOW
    y = jnp.where(low, size, x)
    moved, product = _moved(jnp.minimum(y, _HIGH))
    large = jnp.maximum(y, _HIGH)
    sine = jnp.abs(_sine_of_pi(size - jnp.round(size)))
    one, other = jnp.where(y > _HIGH, large, product), jnp.where(low & (sine > 0), size * sine / math.pi, 1)
    near_zero = low & (x > _LEAST)
    by_zero: Array | None = None
    if short:
        first, second = log_of(one, False), log_of(other, False)
    else:
        ratio, ratio_error, step, step_error, rest = _beside_zero(jnp.clip(x, _LEAST, _LOW), sine)
        first = log_of_sum(jnp.where(near_zero, ratio, one), jnp.where(near_zero, ratio_error, 0))
        second = log_of_sum(jnp.where(near_zero, step, other), jnp.where(near_zero, step_error, 0))
        by_zero = rest + (size + 0.5) * second - first
    middle = (moved - 1) * (moved - 2) * (0.5 + fitted(fits.LOG_GAMMA, moved)) + jnp.where(y < 0.5, -first, first)
    value = jnp.where(y > _HIGH, (large - 0.5) * (first - 1) + (_HALF_LOG_2_PI - 0.5 + _stirling(large)), middle)
    value = jnp.where(low, -second - value, value)
    if by_zero is not None:
        value = jnp.where(near_zero, by_zero, value)
    value = jnp.where((x == 1) | (x == 2), 0, value)  # not -0
    return jnp.where(((x <= 0) & (jnp.floor(x) == x)) | jnp.isinf(x), jnp.inf, value)


def _moved(x: Array) -> tuple[Array, Array]:
    """A number of (1/2, 5/2) at a whole distance, and the product that lies between their gamma functions."""
    y, product = x, jnp.ones_like(x)
    for _ in range(6):
        down = y > 2.5
        y = jnp.where(down, y - 1, y)
        product = jnp.where(down, product * y, product)
    for _ in range(3):
        up = y < 0.5
        product = jnp.where(up, product * y, product)
        y = jnp.where(up, y + 1, y)
    return y, jnp.abs(product)


def _stirling(x: Array) -> Array:
    """What Stirling's formula lacks (DLMF 5.11.1)."""
    return polynomial(fits.STIRLING[0], 1 / (x * x)) / x


def _stirling_difference(a: Array, b: Array) -> Array:
    """`(_stirling(a) - _stirling(b)) / (a - b)`, by Horner's rule for divided differences."""
    u, v = 1 / a, 1 / b
    value = jnp.full_like(a, fits.STIRLING[0][-1])
    slope = jnp.zeros_like(a)
    for c in fits.STIRLING[0][-2::-1]:
        slope = slope * (v * v) + value
        value = value * (u * u) + c
    return -u * v * (value + v * (u + v) * slope)


def _sine_of_pi(x: Array) -> Array:
    """`sin(pi x)` for `|x| <= 1/2`."""
    return x * polynomial(fits.SINE_OF_PI[0], x * x)


def _chosen(place: Array, row: tuple[float, ...]) -> Array:
    """The element at a place: by choices, since XLA computes nothing beside a look-up in vectors on CPUs."""
    values: list[Array | float] = list(row)
    while len(values) > 1:
        odd = (place & 1) == 1
        values = [jnp.where(odd, y, x) for x, y in zip(values[::2], values[1::2], strict=True)]
        place = place >> 1
    return jnp.asarray(values[0])


def _beside_zero(x: Array, sine: Array) -> tuple[Array, Array, Array, Array, Array]:
    """For x in (-10, -2), by a zero z near it (DLMF 5.5.3, with Stirling's formula for `1 - x`).

    With `d = x - z`, every term is a multiple of d, so values beside the zero keep their digits. Gives
    `sin(pi x) / sin(pi z)` and `1 + d / (1 - x)`, each with its rounding error, and what is left beside their
    logarithms.
    """
    place = jnp.clip(-5 - jnp.floor(2 * jnp.where(x > -2.6, -2.5, x)), 0, 15).astype(jnp.int32)
    zero, rest, cotangent, log_a = (_chosen(place, row) for row in fits.LOG_GAMMA_ZEROS)
    d = (x - zero) - rest
    a, b = 1 - zero, 1 - x
    half = _sine_of_pi(d / 2)
    change = cotangent * _sine_of_pi(d) - 2 * half * half  # of the sine, relative
    near = jnp.abs(change) < 0.5
    ratio = jnp.where(near, 1 + change, jnp.where(sine > 0, sine * jnp.sqrt(1 + cotangent * cotangent), 1))
    step = d / b
    following = jnp.where(x == x, 1 + step, jnp.nan)  # XLA would rewrite `(1 + x) - 1` to x
    left = d * (log_a - 1 + _stirling_difference(a, b))
    return ratio, jnp.where(near, change - (ratio - 1), 0), following, step - (following - 1), left
