"""What special functions are made of: polynomials, and functions with derivatives of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from weft.ops._jax import jvp
from weft.ops._kinds import Arrays

Array = jax.Array
Fit = tuple[Sequence[float], Sequence[float]]
"""Coefficients of a numerator and a denominator, lowest power first."""


def polynomial(coefficients: Sequence[float], t: Array) -> Array:
    """A polynomial, lowest power first, by Horner's rule."""
    total = jnp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * t + c
    return total


def fitted(fit: Fit, t: Array) -> Array:
    """A quotient of polynomials; a denominator of one number is 1."""
    top, bottom = (polynomial(part, t) for part in fit)
    return top if len(fit[1]) == 1 else top / bottom


def minus(x: Array, root: tuple[float, float]) -> Array:
    """`x - root`, exact near the root, which is the sum of two numbers."""
    high, low = root
    if x.dtype == jnp.float32:
        narrow = float(np.float32(high))
        high, low = narrow, high - narrow + low
    return (x - high) - low


def with_slope(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An elementwise function whose derivative is `slope`, which may have one of its own."""

    @jax.custom_jvp
    def smooth(x: Array) -> Array:
        return function(x)

    @smooth.defjvp
    def _slope(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
        return smooth(*primals), slope(*primals) * tangents[0]

    return smooth


def by_first(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """An elementwise function of two numbers with derivatives of any order by the first, and none by the other.

    Derivatives are computed together with the function, in forward mode, so it may have loops of any length.
    """

    # A rule of its own, since jax cannot differentiate loops whose number of rounds depends on values backwards.
    @jax.custom_jvp
    def smooth(x: Array, n: Array) -> Array:
        return function(x, n)

    @smooth.defjvp
    def _slope(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
        return smooth(*primals), by_first(derivative)(*primals) * tangents[0]

    def derivative(x: Array, n: Array) -> Array:
        def by_one(x: Array) -> Array:
            return function(x, n)

        return jvp(by_one, (x,), (jnp.ones_like(x),))[1]

    return smooth
