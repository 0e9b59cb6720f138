"""What special functions are made of: polynomials, and functions with derivatives of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from weft.ops._jax import jvp

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


def with_slope(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An elementwise function whose derivative is `slope`, which may have one of its own."""

    @jax.custom_jvp
    def smooth(x: Array) -> Array:
        return function(x)

    @smooth.defjvp
    def _slope(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return smooth(*primals), slope(*primals) * tangents[0]

    return smooth


def by_first(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """An elementwise function of two numbers, differentiable any number of times by the first, and constant in the other.

    The derivative is computed together with the function, in forward mode, so the function may have loops of any length.
    """

    @jax.custom_jvp
    def smooth(x: Array, n: Array) -> Array:
        return function(x, n)

    @smooth.defjvp
    def _slope(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return smooth(*primals), by_first(derivative)(*primals) * tangents[0]

    def derivative(x: Array, n: Array) -> Array:
        return jvp(lambda x: function(x, n), (x,), (jnp.ones_like(x),))[1]

    return smooth
