"""Rows of mathematical functions: exponentials, logarithms, angles, error functions, gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import lax
from jax.scipy import special
from numpy.polynomial import Polynomial

from weft._base.dtype import COMPLEX, FLOAT
from weft._base.types import Arg
from weft.errors import DTypeError
from weft.ops import _fits as fits
from weft.ops._autocast import ACCELERATOR_FLOAT32
from weft.ops._dims import pointwise
from weft.ops._elementary import complex_log1p, exp2, expm1, log1p
from weft.ops._error import erf, erfc, erfinv
from weft.ops._kinds import Array, Scalar
from weft.ops._log_gamma import log_gamma
from weft.ops._rows import alias, category, function_row, in_float32, in_float64, refuse_complex, require
from weft.ops._smooth import fitted, minus, with_slope
from weft.ops._table import FLOAT_TYPE, IN_PLACE, TABLE, Derivative, OpDef, Public, defop

Unary = Callable[[Array], Array]
Slope = Callable[[Array, Array], Array]  # (output, input) -> derivative


def _scaled_slope(slope: Slope) -> Callable[[Array, Array, Array], tuple[Array]]:
    """The vjp of an elementwise function, from its derivative."""

    def vjp(g: Array, out: Array, input: Array) -> tuple[Array]:
        return (g * slope(out, input),)

    return vjp


def _function(
    name: str, function: Unary, doc: str, slope: Slope | None = None, *, also: tuple[str, ...] = (), **options: Arg
) -> OpDef:
    """A row that maps each element, also in place. `slope` is given where the result saves computing the function."""
    vjp = _scaled_slope(slope) if slope else None
    return function_row(name, function, doc, vjp=vjp, public=Public(inplace=True, also=also), **options)


# ---- bodies that jax.numpy lacks, or that differ from jax.numpy's at some points


def _reciprocal(x: Array) -> Array:
    return jnp.ones_like(x) / x


_ROOT = (1.4616321449683622, 9.549995429965697e-17)  # of digamma, as a sum


def _digamma(x: Array) -> Array:
    """Of `lax`, but near its positive zero."""
    near = jnp.abs(x - 1.5) < 0.5
    between = jnp.where(near, x, 1.5)
    value = jnp.where(near, minus(between, _ROOT) * fitted(fits.DIGAMMA, between), special.digamma(x))
    return jnp.where(x == 0, -jnp.copysign(jnp.asarray(jnp.inf, x.dtype), x), value)


_lgamma = with_slope(log_gamma, _digamma)


def _of_real(function: Unary, of_complex: Unary) -> Unary:
    return lambda x: of_complex(x) if category(x) == COMPLEX else function(x)


def _of_float64(function: Unary, other: Unary) -> Unary:
    """XLA's `other` for other types: in float32 it is off by up to 3 ulp, and fast on every device."""
    return lambda x: function(x) if x.dtype == jnp.float64 else other(x)


def _cotangent_derivative(n: int, x: Array) -> Array:
    """Derivative of order `n` of `pi * cot(pi * x)`: a polynomial in the cotangent."""
    c = Polynomial([0, 1])
    poly = c
    for _ in range(n):
        poly = -(1 + c * c) * poly.deriv()
    phase = x - jnp.round(x)  # the period is one
    cotangent = jnp.sin(jnp.pi * (0.5 - jnp.abs(phase))) / jnp.sin(jnp.pi * phase)  # exact where it is 0
    return math.pi ** (n + 1) * jnp.polyval(jnp.asarray(poly.coef[::-1], x.dtype), cotangent)


def _polygamma(n: int, x: Array) -> Array:
    """`(-1)**(n + 1) * n! * zeta(n + 1, x)`; numbers below 1/2 are computed by reflection."""
    if n == 0:
        return _digamma(x)
    sign, left = (-1) ** n, x < 0
    right = -sign * math.factorial(n) * special.zeta(n + 1.0, jnp.where(left, 1 - x, x))
    # Where it is not used the tangent is taken at 1/2, where it is finite.
    reflected = sign * right - _cotangent_derivative(n, jnp.where(left, x, 0.5))
    pole = (x <= 0) & (x == jnp.floor(x))
    return jnp.where(pole, -sign * jnp.inf, jnp.where(left, reflected, right))


_SPECIAL = "special"

# ---- rows: name, function, description, slope

_function("exp", jnp.exp, "`e ** input`.", lambda y, x: y, autocast=ACCELERATOR_FLOAT32)
_function("exp2", _of_real(exp2, jnp.exp2), "`2 ** input`.", lambda y, x: y * math.log(2), also=(_SPECIAL,))
_function(
    "expm1",
    _of_float64(expm1, jnp.expm1),
    "`exp(input) - 1`, exact near 0.",
    lambda y, x: y + 1,
    autocast=ACCELERATOR_FLOAT32,
    also=(_SPECIAL,),
)
_function("log", jnp.log, "Natural logarithm.", autocast=ACCELERATOR_FLOAT32)
_function("log2", jnp.log2, "Logarithm to base 2.", autocast=ACCELERATOR_FLOAT32)
_function("log10", jnp.log10, "Logarithm to base 10.", autocast=ACCELERATOR_FLOAT32)
_function(
    "log1p",
    lambda x: complex_log1p(x) if jnp.iscomplexobj(x) else _of_float64(log1p, jnp.log1p)(x),
    "`log(1 + input)`, exact near 0.",
    lambda y, x: 1 / (1 + x),
    autocast=ACCELERATOR_FLOAT32,
    also=(_SPECIAL,),
)
_function("sqrt", jnp.sqrt, "Square root.", lambda y, x: 0.5 / y)
_function("rsqrt", lax.rsqrt, "`1 / sqrt(input)`.", lambda y, x: -0.5 * y * y * y, autocast=ACCELERATOR_FLOAT32)
_function("reciprocal", _reciprocal, "`1 / input`.", lambda y, x: -y * y, autocast=ACCELERATOR_FLOAT32)
_function("sin", jnp.sin, "Sine.")
_function("cos", jnp.cos, "Cosine.")
_function("tan", jnp.tan, "Tangent.", lambda y, x: 1 + y * y, autocast=ACCELERATOR_FLOAT32)
_function("asin", jnp.arcsin, "Inverse of the sine.", autocast=ACCELERATOR_FLOAT32)
_function("acos", jnp.arccos, "Inverse of the cosine.", autocast=ACCELERATOR_FLOAT32)
_function("atan", jnp.arctan, "Inverse of the tangent.")
_function("sinh", jnp.sinh, "Hyperbolic sine.", autocast=ACCELERATOR_FLOAT32)
_function("cosh", jnp.cosh, "Hyperbolic cosine.", autocast=ACCELERATOR_FLOAT32)
_function("tanh", jnp.tanh, "Hyperbolic tangent.", lambda y, x: 1 - y * y, also=("nn.functional",))
_function("asinh", jnp.arcsinh, "Inverse of the hyperbolic sine.")
_function("acosh", jnp.arccosh, "Inverse of the hyperbolic cosine.")
_function("atanh", jnp.arctanh, "Inverse of the hyperbolic tangent.")
_function(
    "sigmoid",
    lax.logistic,
    "`1 / (1 + exp(-input))`.",
    lambda y, x: y * (1 - y),
    also=("nn.functional", f"{_SPECIAL}.expit"),
)
_function("sinc", jnp.sinc, "`sin(pi * input) / (pi * input)`, and 1 at 0.", also=(_SPECIAL,))
_function("erf", _of_float64(erf, lax.erf), "Error function.", real="erf_vml_cpu", also=(_SPECIAL,))
_function("erfc", erfc, "`1 - erf(input)`, exact for large inputs.", real="erfc_vml_cpu", also=(_SPECIAL,))
_function(
    "erfinv",
    erfinv,
    "Inverse of the error function.",
    real="erfinv_vml_cpu",
    autocast=ACCELERATOR_FLOAT32,
    also=(_SPECIAL,),
)
_function(
    "lgamma",
    _lgamma,
    "Logarithm of `|gamma(input)|`.",
    lambda y, x: _digamma(x),
    real="lgamma_vml_cpu",
    also=(f"{_SPECIAL}.gammaln",),
)
_function(
    "digamma",
    _digamma,
    "Derivative of `lgamma`.",
    lambda y, x: _polygamma(1, x),
    real="digamma",
    also=(_SPECIAL, f"{_SPECIAL}.psi"),
)
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    alias(TABLE[f"a{_name}"], f"arc{_name}")


# ---- functions with further arguments


@defop(dims=pointwise, types=FLOAT_TYPE, public=IN_PLACE)
def deg2rad(input: Array) -> Array:
    """Degrees to radians."""
    refuse_complex(input, "deg2rad is not supported for complex tensors.")
    return in_float32(lambda x: x * (math.pi / 180), input)


@defop(dims=pointwise, types=FLOAT_TYPE, public=IN_PLACE)
def rad2deg(input: Array) -> Array:
    """Radians to degrees."""
    refuse_complex(input, "rad2deg is not supported for complex tensors.")
    return in_float32(lambda x: x * (180 / math.pi), input)


def _logit_vjp(g: Array, input: Array, eps: Scalar | None) -> tuple[Array]:
    """`1 / (x * (1 - x))`; outside of the bounds 0, or NaN if there are no bounds."""
    low = 0 if eps is None else jnp.asarray(eps).astype(input.dtype)
    inside = (input >= low) & (input <= 1 - low)
    safe = jnp.where(inside, input, 0.5)
    return (jnp.where(inside, g / (safe * (1 - safe)), jnp.nan if eps is None else 0),)


@defop(
    dims=pointwise,
    types=FLOAT_TYPE,
    derivative=Derivative(vjp=_logit_vjp),
    public=Public(inplace=True, also=(_SPECIAL,)),
)
def logit(input: Array, eps: Scalar | None = None) -> Array:
    """`log(input / (1 - input))`; with `eps`, the input is clamped to `[eps, 1 - eps]` first."""
    require(input, "logit_cpu", FLOAT)
    if eps is not None:
        low = jnp.asarray(eps).astype(input.dtype)
        input = jnp.where(input < low, low, jnp.where(input > 1 - low, 1 - low, input))
    return in_float32(lambda x: jnp.log(x / (1 - x)), input)


def _polygamma_vjp(g: Array, n: int, input: Array) -> tuple[Array]:
    return (g * _polygamma(n + 1, input),)


@defop(
    dims=pointwise,
    types=FLOAT_TYPE,
    derivative=Derivative(vjp=_polygamma_vjp),
    public=Public(method="", also=(_SPECIAL,)),
)
def polygamma(n: int, input: Array) -> Array:
    """The derivative of order `n` of `digamma`."""
    if n < 0:
        raise DTypeError("polygamma(n, x) does not support negative n.")
    require(input, "polygamma", FLOAT)
    return in_float64(partial(_polygamma, n), input)


@defop(dims=pointwise, types=FLOAT_TYPE, public=Public(inplace=True, also=(f"{_SPECIAL}.multigammaln",)))
def mvlgamma(input: Array, p: int) -> Array:
    """Logarithm of the multivariate gamma function of dimension `p`."""
    if p < 1:
        raise DTypeError("p has to be greater than or equal to 1")
    require(input, "mvlgamma", FLOAT)
    constant = p * (p - 1) / 4 * math.log(math.pi)
    rest = range(1, p)
    return in_float64(lambda x: sum((_lgamma(x - j / 2) for j in rest), _lgamma(x) + constant), input)
