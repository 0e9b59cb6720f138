"""Bessel functions of the orders 0 and 1, and Airy's function.

Near 0 and for large arguments they are computed from the expansions of the Digital Library of Mathematical Functions
(DLMF, chapters 9 and 10), whose slowly varying factors are quotients of polynomials (`_fits.py`). Zeros are
factors of their own where the expansion has only one or two of them, so that values beside them are exact, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp

from weft.ops import _fits as fits
from weft.ops._kinds import Array
from weft.ops._rows import function_row, in_float64
from weft.ops._smooth import fitted, minus, polynomial, with_slope
from weft.ops._table import Public

Function = Callable[[Array], Array]


def _vanishing(x: Array, root: tuple[float, float]) -> Array:
    """`x**2 - root**2`."""
    return minus(x, root) * (x + root[0])


# ---- first and second kind

_J_ROOTS = (2.404825557695773, -1.176691651530894e-16), (3.8317059702075125, -1.5269184090088067e-16)
_Y_ROOTS = (0.8935769662791675, 2.6596231539720385e-17), (2.197141326031017, -4.8259835876454966e-17)
_NEAR = 5.0


def _waves(order: int, x: Array) -> tuple[Array, Array]:
    """J and Y for large x (DLMF 10.17.3 and 10.17.4).

    The phase `x - pi / 4` or `x - 3 pi / 4` is not formed, since it would be rounded.
    """
    t = 1 / (x * x)
    cosine = 1 + t * fitted((fits.COSINE_PART0, fits.COSINE_PART1)[order], t)
    sine = fitted((fits.SINE_PART0, fits.SINE_PART1)[order], t) / x
    sin, cos = jnp.sin(x), jnp.cos(x)
    along, across = (cos + sin, sin - cos) if order == 0 else (sin - cos, -(cos + sin))
    scale = 1 / jnp.sqrt(math.pi * x)
    return scale * (cosine * along - sine * across), scale * (cosine * across + sine * along)


def _j(order: int, x: Array) -> Array:
    """J of x >= 0."""
    small = jnp.minimum(x, _NEAR)
    near = fitted((fits.J0, fits.J1)[order], small * small) * _vanishing(small, _J_ROOTS[order])
    far = _waves(order, jnp.maximum(x, _NEAR))[0]
    value = jnp.where(x < _NEAR, near * small if order else near, far)
    return jnp.where(x == jnp.inf, 0, value)


def _y(order: int, x: Array) -> Array:
    """Y of x > 0; minus infinity at 0, NaN below."""
    inside = x > 0
    small = jnp.where(inside, jnp.minimum(x, _NEAR), 1)
    root = _Y_ROOTS[order]
    near = fitted((fits.Y0, fits.Y1)[order], small * small) * _vanishing(small, root)
    logarithm = 2 / math.pi * jnp.log(small / root[0]) * _j(order, small)
    near = logarithm + (near / small if order else near)
    far = _waves(order, jnp.maximum(x, _NEAR))[1]
    value = jnp.where(x == jnp.inf, 0, jnp.where(x < _NEAR, near, far))
    return jnp.where(inside, value, jnp.where(x == 0, -jnp.inf, jnp.nan))


def _signed(odd: Function) -> Function:
    return lambda x: jnp.where(x < 0, -1, 1).astype(x.dtype) * odd(jnp.abs(x))


def _slope_of_first(order_one: Array, order_zero: Array, x: Array) -> Array:
    """The derivative of J1 (DLMF 10.6.2), which at 0 is one half; likewise for I1."""
    zero = x == 0
    return jnp.where(zero, 0.5, order_zero - order_one / jnp.where(zero, 1, x))


j0 = with_slope(lambda x: _j(0, jnp.abs(x)), lambda x: -j1(x))
j1 = with_slope(_signed(lambda x: _j(1, x)), lambda x: _slope_of_first(j1(x), j0(x), x))
y0 = with_slope(lambda x: _y(0, x), lambda x: -y1(x))
y1 = with_slope(lambda x: _y(1, x), lambda x: y0(x) - y1(x) / x)

# ---- modified ones


def _k(order: int, x: Array, scaled: bool) -> Array:
    """K of x > 0 (DLMF 10.31.1 and 10.31.2; 10.40.2 for x > 1); infinity at 0, NaN below."""
    inside = x > 0
    small, large = jnp.where(inside, jnp.minimum(x, 1), 1), jnp.maximum(x, 1)
    t = small * small
    first = fitted((fits.I0, fits.I1)[order], t)
    near = fitted((fits.K0, fits.K1)[order], t)
    logarithm = jnp.log(small / 2)
    near = 1 / small + small * (near + logarithm * first) if order else near - logarithm * first
    far = fitted((fits.K0_FAR, fits.K1_FAR)[order], 1 / large) / jnp.sqrt(large)
    value = jnp.where(x < 1, near * jnp.exp(small), far) if scaled else jnp.where(x < 1, near, far * jnp.exp(-large))
    return jnp.where(inside, value, jnp.where(x == 0, jnp.inf, jnp.nan))


_SERIES_END = 8.0


def _i(order: int, x: Array, scaled: bool) -> Array:
    """I of x >= 0 (DLMF 10.25.2; 10.40.1 for x > 8)."""
    small, large = jnp.minimum(x, _SERIES_END), jnp.maximum(x, _SERIES_END)
    near = fitted((fits.I0, fits.I1)[order], small * small)
    near = near * small if order else near
    far = fitted((fits.I0_FAR, fits.I1_FAR)[order], 2 * _SERIES_END / large - 1) / jnp.sqrt(large)
    if scaled:
        return jnp.where(x < _SERIES_END, near * jnp.exp(-small), far)
    half = jnp.exp(large / 2)  # the whole would overflow before the result does
    return jnp.where(x < _SERIES_END, near, jnp.where(large == jnp.inf, large, far * half * half))


i0 = with_slope(lambda x: _i(0, jnp.abs(x), False), lambda x: i1(x))
i1 = with_slope(_signed(lambda x: _i(1, x, False)), lambda x: _slope_of_first(i1(x), i0(x), x))
i0e = with_slope(lambda x: _i(0, jnp.abs(x), True), lambda x: i1e(x) - jnp.sign(x) * i0e(x))
i1e = with_slope(_signed(lambda x: _i(1, x, True)), lambda x: _slope_of_first(i1e(x), i0e(x), x) - jnp.sign(x) * i1e(x))
k0 = with_slope(lambda x: _k(0, x, False), lambda x: -k1(x))
k1 = with_slope(lambda x: _k(1, x, False), lambda x: -k0(x) - k1(x) / x)
k0e = with_slope(lambda x: _k(0, x, True), lambda x: k0e(x) - k1e(x))
k1e = with_slope(lambda x: _k(1, x, True), lambda x: k1e(x) - k0e(x) - k1e(x) / x)


def _spherical(x: Array) -> Array:
    zero = (x == 0) | jnp.isinf(x)
    return jnp.where(zero, jnp.where(x == 0, 1, 0), jnp.sin(x) / jnp.where(zero, 1, x)).astype(x.dtype)


_SERIES = tuple((-1) ** (k + 1) * (2 * k + 2) / math.factorial(2 * k + 3) for k in range(7))


def _spherical_slope(x: Array) -> Array:
    """`(cos(x) - sin(x) / x) / x`, and near 0 its power series (DLMF 10.53.1)."""
    near = jnp.abs(x) < 1
    safe = jnp.where(near | jnp.isinf(x), 1, x)
    far = jnp.where(jnp.isinf(x), 0, (jnp.cos(safe) - jnp.sin(safe) / safe) / safe)
    small = jnp.where(near, x, 0)
    return jnp.where(near, small * polynomial(_SERIES, small * small), far)


spherical = with_slope(_spherical, _spherical_slope)

# ---- Airy's function

_AIRY_LOW, _AIRY_HIGH = -2.0, 1.0
_AIRY_SLOPE = tuple(k * c for k, c in enumerate(fits.AIRY[0]))[1:]


def _airy(order: int, x: Array) -> Array:
    """Ai or, for order 1, its derivative (DLMF 9.7.5 and 9.7.6 above, 9.7.9 and 9.7.10 below)."""
    middle = polynomial((fits.AIRY[0], _AIRY_SLOPE)[order], jnp.clip(x, _AIRY_LOW, _AIRY_HIGH))
    high, low = jnp.maximum(x, _AIRY_HIGH), jnp.maximum(-x, -_AIRY_LOW)
    root = jnp.sqrt(high)
    zeta = 2 / 3 * high * root
    factor = fitted((fits.AIRY0_FAR, fits.AIRY1_FAR)[order], 1 / zeta) / (2 * math.sqrt(math.pi)) * jnp.exp(-zeta)
    above = -factor * jnp.sqrt(root) if order else factor / jnp.sqrt(root)
    below = _airy_wave(order, low)
    value = jnp.where(x > _AIRY_HIGH, above, jnp.where(x < _AIRY_LOW, below, middle))
    return jnp.where(x == jnp.inf, 0, jnp.where(jnp.isnan(x), x, value))


def _airy_wave(order: int, x: Array) -> Array:
    """Ai or its derivative at -x."""
    root = jnp.sqrt(x)
    zeta = 2 / 3 * x * root
    t = 1 / (zeta * zeta)
    cosine = 1 + t * fitted((fits.AIRY0_COSINE_PART, fits.AIRY1_COSINE_PART)[order], t)
    sine = fitted((fits.AIRY0_SINE_PART, fits.AIRY1_SINE_PART)[order], t) / zeta
    sin, cos = jnp.sin(zeta), jnp.cos(zeta)
    scale = math.sqrt(0.5 / math.pi) / jnp.sqrt(root)
    if order:
        return scale * root * (cosine * (sin - cos) + sine * (sin + cos))
    return scale * (cosine * (cos + sin) + sine * (sin - cos))


airy = with_slope(lambda x: in_float64(partial(_airy, 0), x), lambda x: airy_slope(x))
airy_slope = with_slope(lambda x: in_float64(partial(_airy, 1), x), lambda x: x * airy(x))

# ---- rows

_FIRST = "modified_bessel_i"
_row = partial(function_row, public=Public(module="special"))

_row("bessel_j0", j0, "Bessel function of the first kind, order 0.", real="bessel_j0_cpu")
_row("bessel_j1", j1, "Bessel function of the first kind, order 1.", real="bessel_j1_cpu")
_row("bessel_y0", y0, "Bessel function of the second kind, order 0.", real="bessel_y0_cpu")
_row("bessel_y1", y1, "Bessel function of the second kind, order 1.", real="bessel_y1_cpu")
_row("i0e", i0e, "`exp(-abs(input)) * i0(input)`.", real="i0e_cpu")
_row(
    "i1",
    i1,
    "Modified Bessel function of the first kind, order 1.",
    real="i1_cpu",
    public=Public(module="special", also=(f"special.{_FIRST}1",)),
)
_row("i1e", i1e, "`exp(-abs(input)) * i1(input)`.", real="i1e_cpu")
_row("modified_bessel_k0", k0, "Modified Bessel function of the second kind, order 0.", real="modified_bessel_k0_cpu")
_row("modified_bessel_k1", k1, "Modified Bessel function of the second kind, order 1.", real="modified_bessel_k1_cpu")
_row(
    "scaled_modified_bessel_k0", k0e, "`exp(input) * modified_bessel_k0(input)`.", real="scaled_modified_bessel_k0_cpu"
)
_row(
    "scaled_modified_bessel_k1", k1e, "`exp(input) * modified_bessel_k1(input)`.", real="scaled_modified_bessel_k1_cpu"
)
_row("spherical_bessel_j0", spherical, "`sin(input) / input`, and 1 at 0.", real="spherical_bessel_j0_cpu")
_row("airy_ai", airy, "Airy's function Ai.", real="airy_ai_cpu")
function_row(
    "i0",
    i0,
    "Modified Bessel function of the first kind, order 0.",
    real="i0_vml_cpu",
    public=Public(inplace=True, also=("special", f"special.{_FIRST}0")),
)
