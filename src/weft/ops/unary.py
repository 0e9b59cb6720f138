"""Rows of functions of one tensor. Mathematical functions such as `exp` are in `functions`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
from jax import lax

from weft._base.dtype import BOOL, COMPLEX, FLOAT, INTEGER
from weft.errors import DTypeError
from weft.ops import _strides as strides
from weft.ops._dims import Factors, Sizes, Static, pointwise
from weft.ops._float8 import converted
from weft.ops._kinds import Array, DTypeArg, Scalar
from weft.ops._rows import alias, category, documented, refuse_complex, require
from weft.ops._table import (
    FLOAT_TYPE,
    IN_PLACE,
    INTERNAL,
    IS_LINEAR,
    NO_ARITHMETIC,
    SAVES,
    Derivative,
    OpDef,
    Public,
    View,
    defop,
)

_BOOL_NEG = (
    "Negation, the `-` operator, on a bool tensor is not supported. "
    "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
)
_COMPLEX_SIGN = "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."


# ---- sign and absolute value


@defop(dims=pointwise, shards=IS_LINEAR, public=Public(dunder=("__neg__",), inplace=True))
def neg(input: Array) -> Array:
    """`-input`; `DTypeError` for booleans."""
    if category(input) == BOOL:
        raise DTypeError(_BOOL_NEG)
    return jnp.negative(input)


def _abs_vjp(g: Array, input: Array) -> tuple[Array]:
    """The sign, which is 0 at 0."""
    return (g * jnp.sign(input),)


@defop(dims=pointwise, derivative=Derivative(vjp=_abs_vjp), public=Public(dunder=("__abs__",), out=""))
def abs(input: Array) -> Array:
    """Absolute value; that of a complex number is real. The gradient at 0 is 0."""
    require(input, "abs_cpu", INTEGER, FLOAT, COMPLEX)
    if category(input) != COMPLEX:
        return jnp.abs(input)
    zero = input == 0
    return jnp.where(zero, 0, jnp.abs(jnp.where(zero, 1, input)))


@defop(dims=pointwise, public=IN_PLACE)
def sign(input: Array) -> Array:
    """-1, 0 or 1; 0 for NaN. `DTypeError` for complex numbers."""
    refuse_complex(input, _COMPLEX_SIGN)
    if category(input) == BOOL:
        return input
    return (input > 0).astype(input.dtype) - (input < 0).astype(input.dtype)


@defop(dims=pointwise, public=IN_PLACE)
def sgn(input: Array) -> Array:
    """`input / abs(input)`, and 0 at 0."""
    if category(input) != COMPLEX:
        return sign.impl(input)
    zero = input == 0
    safe = jnp.where(zero, 1, input)
    return jnp.where(zero, 0, safe / jnp.abs(safe))


@defop(dims=pointwise, public=Public(out="signbit does not support non-boolean outputs."))
def signbit(input: Array) -> Array:
    """Whether the sign bit is set, as it is in -0."""
    refuse_complex(input, "signbit is not implemented for complex tensors.")
    return jnp.signbit(input) if category(input) == FLOAT else input < 0


@defop(derivative=Derivative(name="Pow"), dims=pointwise, public=IN_PLACE)
def square(input: Array) -> Array:
    """`input * input`; booleans count as integers."""
    base = input.astype(jnp.int64) if category(input) == BOOL else input
    return jnp.square(base)


# ---- rounding


def _rounding(name: str, function: Callable[[Array], Array], doc: str) -> OpDef:
    """A row that rounds; integers stay as they are."""

    def body(input: Array) -> Array:
        refuse_complex(input, f"{name} is not supported for complex inputs")
        require(input, f"{name}_vml_cpu", INTEGER, FLOAT)
        return function(input) if category(input) == FLOAT else input

    return defop(name, dims=pointwise, public=IN_PLACE)(documented(body, name, doc))


floor = _rounding("floor", jnp.floor, "The largest whole number that is not above.")
ceil = _rounding("ceil", jnp.ceil, "The smallest whole number that is not below.")
trunc = _rounding("trunc", jnp.trunc, "The whole part.")


@defop(dims=pointwise, public=Public(inplace=True, also=("special",)))
def round(input: Array, *, decimals: int = 0) -> Array:
    """Rounding to `decimals` decimals; halves go to the even neighbour."""
    require(input, "round_vml_cpu", INTEGER, FLOAT)
    if decimals == 0:
        return jnp.round(input) if category(input) == FLOAT else input
    require(input, "round_cpu", FLOAT)
    scale = jnp.asarray(10.0 ** builtins.abs(decimals), input.dtype)
    return jnp.round(input * scale) / scale if decimals > 0 else jnp.round(input / scale) * scale


@defop(dims=pointwise, public=IN_PLACE)
def frac(input: Array) -> Array:
    """The fractional part; its derivative is 1."""
    require(input, "frac_cpu", FLOAT)
    return input - lax.stop_gradient(jnp.trunc(input))


def _twice(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Both outputs have the dims of the input."""
    one = pointwise(shapes, static)
    return Factors(one.ins, one.outs * 2)


def _frexp_vjp(g: tuple[Array, Array], out: tuple[Array, Array], input: Array) -> tuple[Array]:
    """The mantissa is `input / 2**exponent`; the exponent counts as constant."""
    return (g[0] * jnp.exp2(-out[1].astype(input.dtype)),)


@defop(dims=_twice, derivative=Derivative(vjp=_frexp_vjp), outputs=("mantissa", "exponent"))
def frexp(input: Array) -> tuple[Array, Array]:
    """`input = mantissa * 2**exponent` with `0.5 <= |mantissa| < 1`; exponents are int32."""
    if category(input) != FLOAT:
        raise DTypeError("torch.frexp() only supports floating-point dtypes")
    mantissa, exponent = jnp.frexp(input)
    return mantissa.astype(input.dtype), exponent.astype(jnp.int32)


# ---- complex numbers


def _write_real(base: Array, value: Array) -> Array:
    return lax.complex(value, jnp.imag(base)) if category(base) == COMPLEX else value


@defop(dims=pointwise, view=View(layout=strides.part, write=_write_real), public=INTERNAL)
def real(input: Array) -> Array:
    """The real part."""
    return jnp.real(input)


def _write_imag(base: Array, value: Array) -> Array:
    return lax.complex(jnp.real(base), value)


@defop(
    dims=pointwise,
    view=View(layout=partial(strides.part, place=1), write=_write_imag),
    public=Public(method="", attribute=True),
)
def imag(input: Array) -> Array:
    """The imaginary part; `DTypeError` for other than complex numbers."""
    if category(input) != COMPLEX:
        raise DTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return jnp.imag(input)


def _conjugate(input: Array) -> Array:
    return jnp.conj(input) if category(input) == COMPLEX else input


def _write_conj(base: Array, value: Array) -> Array:
    del base
    return _conjugate(value)


@defop(dims=pointwise, view=View(layout=strides.conjugated, write=_write_conj), public=INTERNAL)
def conj(input: Array) -> Array:
    """The complex conjugate."""
    return _conjugate(input)


@defop(types=NO_ARITHMETIC, dims=pointwise, public=INTERNAL)
def conj_physical(input: Array) -> Array:
    """The complex conjugate as a new tensor, not a view."""
    return _conjugate(input)


@defop(dims=pointwise, types=FLOAT_TYPE, derivative=SAVES)
def angle(input: Array) -> Array:
    """The angle in the complex plane; for real numbers pi below 0, else 0, and NaN for NaN."""
    if category(input) == COMPLEX:
        zero = input == 0
        return jnp.where(zero, 0, jnp.angle(jnp.where(zero, 1, input)))
    return jnp.where(input != input, jnp.nan, jnp.where(input < 0, jnp.pi, 0)).astype(input.dtype)


# ---- kinds of numbers


@defop(dims=pointwise)
def isnan(input: Array) -> Array:
    """Whether an element, or a part of it, is NaN."""
    return input != input


@defop(dims=pointwise)
def isinf(input: Array) -> Array:
    """Whether an element, or a part of it, is infinite."""
    return jnp.isinf(input)


@defop(dims=pointwise)
def isfinite(input: Array) -> Array:
    """Whether an element is neither infinite nor NaN."""
    return jnp.isfinite(input)


@defop(dims=pointwise, public=Public(out="isposinf does not support non-boolean outputs."))
def isposinf(input: Array) -> Array:
    """Whether an element is plus infinity."""
    refuse_complex(input, "isposinf does not support complex inputs.")
    return jnp.isinf(input) & (input > 0)


@defop(dims=pointwise, public=Public(out="isneginf does not support non-boolean outputs."))
def isneginf(input: Array) -> Array:
    """Whether an element is minus infinity."""
    refuse_complex(input, "isneginf does not support complex inputs.")
    return jnp.isinf(input) & (input < 0)


@defop(dims=pointwise)
def isreal(input: Array) -> Array:
    """Whether the imaginary part is 0."""
    return jnp.imag(input) == 0


@defop(
    types=NO_ARITHMETIC,
    dims=pointwise,
    public=Public(inplace=True, out="nan_to_num: dtype of out: {1} should be same as input: {0}"),
)
def nan_to_num(
    input: Array, nan: Scalar | None = None, posinf: Scalar | None = None, neginf: Scalar | None = None
) -> Array:
    """NaN and infinities replaced, by default with 0 and the largest finite numbers; in complex numbers, each part."""
    if category(input) < FLOAT:
        return input
    if category(input) == COMPLEX:
        # Each part by itself, since a complex number with one bad part keeps the other one.
        parts = (nan_to_num.impl(part, nan, posinf, neginf) for part in (input.real, input.imag))
        return lax.complex(*parts)
    info = jnp.finfo(input.dtype)
    out = input
    for bad, number, default in (
        (input != input, nan, 0),
        (input == jnp.inf, posinf, info.max),
        (input == -jnp.inf, neginf, info.min),
    ):
        out = jnp.where(bad, jnp.asarray(default if number is None else number).astype(input.dtype), out)
    return out


# ---- copies


@defop(types=NO_ARITHMETIC, dims=pointwise, shards=IS_LINEAR, public=INTERNAL)
def clone(input: Array) -> Array:
    """A copy of the tensor, which shares no memory with it."""
    return input


@defop(types=NO_ARITHMETIC, derivative=Derivative(name="ToCopy"), dims=pointwise, public=INTERNAL)
def to_dtype(input: Array, dtype: DTypeArg = None) -> Array:
    """`input` with another element type; complex numbers lose their imaginary part in real types."""
    if dtype is None:
        return input
    if category(input) == COMPLEX and dtype.category in (INTEGER, FLOAT):
        input = input.real
    return converted(input, dtype.numpy)


for _row, _name in ((neg, "negative"), (abs, "absolute"), (trunc, "fix")):
    alias(_row, _name)
