"""Orthogonal polynomials (DLMF chapter 18), of a degree for each element, by their recurrences (DLMF 18.9)."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from weft._base.dtype import FLOAT
from weft.ops._dims import pointwise
from weft.ops._kinds import Array, Operand
from weft.ops._rows import documented, in_float32, require
from weft.ops._smooth import by_first
from weft.ops._table import FLOAT_TYPE, Public, defop

Step = Callable[[Array, Array, Array, Array], Array]
"""(k, x, the polynomial of degree k, that of degree k - 1) -> that of degree k + 1"""
Function = Callable[[Array, Array], Array]


def _recurrence(first: Callable[[Array], Array], step: Step, most: Function | None = None) -> Function:
    """The polynomial of degree n, from that of degree 1; 0 for negative degrees.

    The loop ends at the largest degree, or at that of the elements for which `most` gives their degree and not 0.
    """

    def function(x: Array, n: Array) -> Array:
        # One loop for all elements; those of smaller degree stop changing.
        rounds = jnp.max(n if most is None else most(x, n), initial=0)

        def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            k, now, before = state
            following = step(k.astype(x.dtype), x, now, before)
            return k + 1, jnp.where(k < n, following, now), jnp.where(k < n, now, before)

        start = jnp.ones((), n.dtype), first(x), jnp.ones_like(x)
        last = lax.while_loop(lambda state: state[0] < rounds, advance, start)[1]
        return jnp.where(n < 0, 0, jnp.where(n == 0, 1, last))

    return function


def _chebyshev(first: Callable[[Array], Array], wave: Function) -> Function:
    """A Chebyshev polynomial: inside of (-1, 1), by trigonometric functions if the degree is large (DLMF 18.5)."""

    def waves(x: Array, n: Array) -> Array:
        return (n > _SHORT) & (jnp.abs(x) < 1)

    by_steps = _recurrence(
        first, lambda k, x, now, before: 2 * x * now - before, lambda x, n: jnp.where(waves(x, n), 0, n)
    )

    def function(x: Array, n: Array) -> Array:
        waved = waves(x, n)
        angle = jnp.arccos(jnp.where(waved, x, 0))
        return jnp.where(waved, wave(angle, n.astype(x.dtype)), by_steps(x, n))

    return function


_SHORT = 8  # degrees up to which the recurrence is as exact


def _row(name: str, function: Function, doc: str, shifted: bool = False) -> None:
    smooth = by_first(function)

    def value(x: Array, n: Array) -> Array:
        degree = jnp.where(jnp.isfinite(n), jnp.clip(n, -1, 2**31 - 1), -1).astype(jnp.int32)
        return smooth(2 * x - 1 if shifted else x, degree)

    def body(input: Operand, n: Operand) -> Array:
        require(input, f"{name}_cpu", FLOAT)
        return in_float32(value, *jnp.broadcast_arrays(input, n))

    defop(name, dims=pointwise, types=FLOAT_TYPE, public=Public(module="special"))(documented(body, name, doc))


_CHEBYSHEV = {
    "t": ("first", lambda x: x, lambda a, n: jnp.cos(n * a)),
    "u": ("second", lambda x: 2 * x, lambda a, n: jnp.sin((n + 1) * a) / jnp.sin(a)),
    "v": ("third", lambda x: 2 * x - 1, lambda a, n: jnp.cos((n + 0.5) * a) / jnp.cos(a / 2)),
    "w": ("fourth", lambda x: 2 * x + 1, lambda a, n: jnp.sin((n + 0.5) * a) / jnp.sin(a / 2)),
}

for _letter, (_kind, _first, _wave) in _CHEBYSHEV.items():
    _polynomial = _chebyshev(_first, _wave)
    _doc = f"The Chebyshev polynomial of the {_kind} kind and degree `n`"
    _row(f"chebyshev_polynomial_{_letter}", _polynomial, f"{_doc}.")
    _row(f"shifted_chebyshev_polynomial_{_letter}", _polynomial, f"{_doc}, at `2 * input - 1`.", True)

_row(
    "hermite_polynomial_h",
    _recurrence(lambda x: 2 * x, lambda k, x, now, before: 2 * (x * now - k * before)),
    "The physicist's Hermite polynomial of degree `n`.",
)
_row(
    "hermite_polynomial_he",
    _recurrence(lambda x: x, lambda k, x, now, before: x * now - k * before),
    "The probabilist's Hermite polynomial of degree `n`.",
)
_row(
    "laguerre_polynomial_l",
    _recurrence(lambda x: 1 - x, lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1)),
    "The Laguerre polynomial of degree `n`.",
)
_row(
    "legendre_polynomial_p",
    _recurrence(lambda x: x, lambda k, x, now, before: x * now + k / (k + 1) * (x * now - before)),
    "The Legendre polynomial of degree `n`.",
)
