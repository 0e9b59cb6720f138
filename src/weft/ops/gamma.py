"""Incomplete gamma functions.

jax has no derivative of `igamma_grad_a`. It is that of the same function from the slope of gamma draws: a draw moves by
`-(dP/da) / (dP/dx)` where P is the lower function, so that `dP/da` is minus the slope times the density.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import FLOAT
from weft.ops._dims import pointwise
from weft.ops._jax import jvp
from weft.ops._kinds import Array, Arrays
from weft.ops._rows import documented, in_float64, require
from weft.ops._table import COMMON_TYPE, Public, defop
from weft.ops.pathwise import gamma_slope


def _density(a: Array, x: Array) -> Array:
    """The derivative of the lower function by x."""
    return jnp.exp((a - 1) * jnp.log(x) - x - lax.lgamma(a))


def _smooth_order_slope(a: Array, x: Array) -> Array:
    """`igamma_grad_a` by operations that have derivatives; 0 at both ends, where the functions are constant."""
    inside = (x > 0) & jnp.isfinite(x)
    x = jnp.where(inside, x, 1)
    return jnp.where(inside, -gamma_slope(a, x) * _density(a, x), 0)


@jax.custom_jvp
def _order_slope(a: Array, x: Array) -> Array:
    """The derivative of the lower function by its order."""
    return lax.igamma_grad_a(a, x)


@_order_slope.defjvp
def _order_slope_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    return _order_slope(*primals), jvp(_smooth_order_slope, primals, tangents)[1]


def _with_slopes(function: Callable[[Array, Array], Array], sign: int) -> Callable[[Array, Array], Array]:
    """One of the two functions, of which the lower one grows by `sign`."""

    @jax.custom_jvp
    def value(a: Array, x: Array) -> Array:
        return function(a, x)

    @value.defjvp
    def move(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
        (a, x), (of_a, of_x) = primals, tangents
        return value(a, x), sign * (_order_slope(a, x) * of_a + _density(a, x) * of_x)

    return value


def _row(name: str, public: str, function: Callable[[Array, Array], Array], doc: str) -> None:
    def body(input: Array, other: Array) -> Array:
        require(input, f"{name}_cpu", FLOAT)
        return in_float64(function, *jnp.broadcast_arrays(input, other))

    row = defop(name, dims=pointwise, types=COMMON_TYPE, public=Public(inplace=True, also=(f"special.{public}",)))
    row(documented(body, name, doc))


_row(
    "igamma",
    "gammainc",
    _with_slopes(jax.scipy.special.gammainc, 1),
    "The lower regularised incomplete gamma function of order `input`.",
)
_row(
    "igammac",
    "gammaincc",
    _with_slopes(jax.scipy.special.gammaincc, -1),
    "The upper regularised incomplete gamma function of order `input`.",
)
