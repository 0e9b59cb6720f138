"""Rows of arithmetic, element by element. Comparison and logic are in `compare`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import BOOL, COMPLEX, FLOAT, INTEGER, bool_, from_numpy
from weft.errors import DomainError, DTypeError
from weft.ops._autocast import ACCELERATOR_FLOAT32, ACCELERATOR_PROMOTE
from weft.ops._dims import pointwise
from weft.ops._kinds import Array, Operand, Scalar
from weft.ops._rows import (
    alias,
    category,
    factor,
    in_float32,
    quotient,
    refuse_complex,
    require,
    require_scale,
    unbroadcast,
)
from weft.ops._table import (
    ACCELERATOR_IN_FLOAT32,
    COMMON_TYPE,
    FLOAT_TYPE,
    IN_PLACE,
    INTERNAL,
    IS_LINEAR,
    NO_METHOD,
    Arithmetic,
    Check,
    Derivative,
    InputType,
    Promote,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import scalar_name

_BOOL_MINUS = "Subtraction, the `-` operator, with {} is not supported. {} operator instead."
_INTEGER_ADDCDIV = (
    "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
    "division of tensor1 and tensor2: cast tensor1 and tensor2 to a floating-point type for a true division"
)


maps = partial(defop, dims=pointwise, types=COMMON_TYPE)
_SUM, _SUMS = replace(COMMON_TYPE, of_numbers=True), Shards(linear="all")
_PRODUCT = replace(COMMON_TYPE, exact_numbers=True, of_numbers=True)
_FUSED = replace(COMMON_TYPE, autocast=ACCELERATOR_PROMOTE, exact_numbers=True)

# ---- sums and products


def _times(x: Array, alpha: Scalar) -> Array:
    """`alpha * x` in the type of `x`; `DTypeError` where `alpha` would be truncated in that type."""
    require_scale("alpha", alpha, x)
    return x * alpha.astype(x.dtype) if isinstance(alpha, jax.Array) else x


@maps(types=_SUM, shards=_SUMS, public=Public(dunder=("__add__", "__radd__"), inplace=True, older=True))
def add(input: Operand, other: Operand, *, alpha: Scalar = 1) -> Array:
    """`input + alpha * other`; booleans add as `or`."""
    return jnp.add(input, _times(other, alpha))


def _require_no_bool(types: Mapping[str, InputType]) -> str:
    bools = [types[name].dtype is bool_ for name in ("input", "other")]
    if all(bools):
        raise DTypeError(_BOOL_MINUS.format("two bool tensors", "Use the `^` or `logical_xor()`"))
    if any(bools):
        raise DTypeError(
            _BOOL_MINUS.format("a bool tensor", "If you are trying to invert a mask, use the `~` or `logical_not()`")
        )
    return ""


@maps(
    types=_SUM,
    shards=_SUMS,
    public=Public(dunder=("__sub__", "__rsub__"), inplace=True, older=True),
    check=Check(inputs=_require_no_bool),
)
def sub(input: Operand, other: Operand, *, alpha: Scalar = 1) -> Array:
    """`input - alpha * other`; `DTypeError` for booleans."""
    return jnp.subtract(input, _times(other, alpha))


@maps(shards=_SUMS, public=NO_METHOD, check=Check(inputs=_require_no_bool))
def rsub(input: Array, other: Operand, *, alpha: Scalar = 1) -> Array:
    """`other - alpha * input`; `DTypeError` for booleans."""
    return sub.impl(other, input, alpha=alpha)


@maps(types=_PRODUCT, shards=IS_LINEAR, public=Public(dunder=("__mul__", "__rmul__"), inplace=True))
def mul(input: Operand, other: Operand) -> Array:
    """`input * other`; booleans multiply as `and`."""
    return jnp.multiply(input, other)


@maps(types=_FUSED, public=Public(inplace=True, older=True))
def addcmul(input: Array, tensor1: Array, tensor2: Array, *, value: Scalar = 1) -> Array:
    """`input + value * tensor1 * tensor2`."""
    require(input, "addcmul_cpu_out", INTEGER, FLOAT, COMPLEX)
    return in_float32(lambda x, v, a, b: x + v * a * b, input, factor(value, input), tensor1, tensor2)


@maps(types=_FUSED, public=Public(inplace=True, older=True))
def addcdiv(input: Array, tensor1: Array, tensor2: Array, *, value: Scalar = 1) -> Array:
    """`input + value * tensor1 / tensor2`; `DTypeError` for integers."""
    if category(input) < FLOAT:
        raise DTypeError(_INTEGER_ADDCDIV)
    return in_float32(lambda x, v, a, b: x + v * quotient(a, b), input, factor(value, input), tensor1, tensor2)


@defop(dims=pointwise, public=Public(inplace=True, out=""))
def lerp(input: Array, end: Array, weight: Operand) -> Array:
    """`input + weight * (end - input)`, computed from the nearer end; all types must be equal."""
    require(input, "lerp_kernel_scalar", FLOAT, COMPLEX)
    for name, other in (("end", end), ("weight", weight)):
        if other.dtype != input.dtype and (name == "end" or other.ndim):
            want, got = (scalar_name(from_numpy(x.dtype)).lower() for x in (input, other))
            raise DTypeError(f"expected dtype {want} for `{name}` but got dtype {got}")
    return in_float32(_between, input, end, weight)


def _between(a: Array, b: Array, weight: Array) -> Array:
    return jnp.where(jnp.abs(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1 - weight))


# ---- quotients


def _divide_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    slope = -quotient(quotient(input, other), other)
    return unbroadcast(quotient(g, other), input), unbroadcast(g * slope, other)


@maps(
    types=replace(_PRODUCT, promote=Promote.FLOAT),
    derivative=Derivative(vjp=_divide_vjp, name="Div"),
    shards=Shards(linear="first"),
    public=Public(dunder=("__truediv__",), inplace=True),
)
def true_divide(input: Operand, other: Operand) -> Array:
    """`input / other`; integers give the default float type."""
    return quotient(input, other)


def _by_zero(input: Array, other: Array) -> Array | None:
    """For integers, True where the divisor is zero; None for other types, which allow it."""
    return None if category(input) == FLOAT else other == 0


divides = partial(maps, check=Check(elements=_by_zero, text="ZeroDivisionError", error=DomainError))
_ROUNDED = Derivative(saves=True, name="DivBackward2")


@divides(derivative=_ROUNDED, types=_PRODUCT, public=INTERNAL)
def div_trunc(input: Operand, other: Operand) -> Array:
    """`input / other` rounded towards zero, in the common type."""
    require(input, "div_trunc_cpu", INTEGER, FLOAT)
    ratio = quotient(input, other)
    return jnp.trunc(ratio) if category(input) == FLOAT else ratio


@divides(derivative=_ROUNDED, types=_PRODUCT, public=Public(dunder=("__floordiv__", "__rfloordiv__"), inplace=True))
def floor_divide(input: Operand, other: Operand) -> Array:
    """`input / other` rounded down, in the common type."""
    require(input, "div_floor_cpu", INTEGER, FLOAT)
    if category(input) == INTEGER:
        return jnp.floor_divide(input, other)
    input, other = lax.stop_gradient((input, other))  # the derivative of a step function is 0
    ratio, floor = quotient(input, other), jnp.floor_divide(input, other)
    floor = jnp.where(floor == 0, jnp.copysign(floor, ratio), floor)
    return jnp.where(other == 0, ratio, floor)


@divides(public=Public(dunder=("__mod__", "__rmod__"), inplace=True))
def remainder(input: Operand, other: Operand) -> Array:
    """`input - other * floor(input / other)`: the sign is that of `other`."""
    require(input, "remainder_cpu", INTEGER, FLOAT)
    return jnp.remainder(input, other)


@divides(public=IN_PLACE)
def fmod(input: Array, other: Operand) -> Array:
    """`input - other * trunc(input / other)`: the sign is that of `input`."""
    require(input, "fmod_cpu", INTEGER, FLOAT)
    return jnp.fmod(input, other)


# ---- powers


def _pow_vjp(g: Array, out: Array, input: Array, exponent: Array) -> tuple[Array, Array]:
    """Gradients of `x ** y`; 0 with respect to `x` where y = 0, and to `y` where x = 0 <= y."""
    flat = exponent == 0
    slope = jnp.where(flat, 0, exponent * jnp.power(input, jnp.where(flat, 1, exponent - 1)))
    still = (input == 0) & (exponent >= 0)
    log = jnp.where(still, 0, jnp.log(jnp.where(still, 1, input)))
    return unbroadcast(g * slope, input), unbroadcast(g * out * log, exponent)


@defop(
    derivative=Derivative(vjp=_pow_vjp, name="PowBackward1"),
    dims=pointwise,
    types=Types(promote=Promote.COMMON, autocast=ACCELERATOR_FLOAT32),
    public=INTERNAL,
)
def pow(input: Operand, exponent: Operand) -> Array:
    """`input ** exponent`; an integer to a negative power is rounded towards zero."""
    require(input, "pow", INTEGER, FLOAT, COMPLEX)
    if category(input) != INTEGER:
        return jnp.power(input, exponent)
    unit = jnp.where(input == 1, 1, jnp.where(input + 1 == 0, 1 - 2 * (exponent & 1), 0))
    return jnp.where(exponent < 0, unit.astype(input.dtype), _whole_power(input, jnp.maximum(exponent, 0)))


def _whole_power(base: Array, exponent: Array) -> Array:
    """Powers of integers by squaring; overflow wraps around. `jnp.power` reads only six bits of the exponent."""

    def step(_: object, state: tuple[Array, ...]) -> tuple[Array, ...]:
        base, exponent, out = state
        return base * base, exponent >> 1, jnp.where(exponent & 1, out * base, out)

    base, exponent = jnp.broadcast_arrays(base, exponent)
    return lax.fori_loop(0, 8 * base.dtype.itemsize, step, (base, exponent, jnp.ones_like(base)))[2]


@defop(derivative=Derivative(name="Pow"), dims=pointwise, types=ACCELERATOR_IN_FLOAT32, public=INTERNAL)
def pow_number(input: Array, exponent: int | float) -> Array:
    """`input ** exponent` for a constant; for integers the exponent must be a non-negative integer."""
    base = input.astype(jnp.int64) if category(input) == BOOL else input
    if category(base) == INTEGER:
        if exponent < 0:
            raise DTypeError("Integers to negative integer powers are not allowed.")
        return lax.integer_pow(base, int(exponent))
    if exponent in (0.5, -0.5):
        return jnp.sqrt(base) if exponent > 0 else lax.rsqrt(base)
    if exponent in range(-4, 5):  # repeated products are exact enough for small exponents only
        return lax.integer_pow(base, int(exponent))
    return jnp.power(base, float(exponent))


@defop(types=Types(promote=Promote.FLOAT, arithmetic=Arithmetic.OWN), dims=pointwise, public=IN_PLACE)
def ldexp(input: Array, other: Array) -> Array:
    """`input * 2 ** other`."""
    return input * jnp.power(jnp.full((), 2, other.dtype), other)


# ---- the larger, the smaller, and bounds


@maps()
def maximum(input: Array, other: Array) -> Array:
    """The larger of two elements; NaN if either is NaN. Equal elements share the gradient."""
    refuse_complex(input, "maximum not implemented for complex tensors.")
    return jnp.maximum(input, other)


@maps()
def minimum(input: Array, other: Array) -> Array:
    """The smaller of two elements; NaN if either is NaN. Equal elements share the gradient."""
    refuse_complex(input, "minimum not implemented for complex tensors.")
    return jnp.minimum(input, other)


@maps()
def fmax(input: Array, other: Array) -> Array:
    """The larger of two elements; a number is preferred to NaN. For equal elements the gradient goes to `input`."""
    refuse_complex(input, "fmax not implemented for complex tensors.")
    return jnp.where((input >= other) | (other != other), input, other)


@maps()
def fmin(input: Array, other: Array) -> Array:
    """The smaller of two elements; a number is preferred to NaN. For equal elements the gradient goes to `input`."""
    refuse_complex(input, "fmin not implemented for complex tensors.")
    return jnp.where((input <= other) | (other != other), input, other)


@defop(derivative=Derivative(name="ClampBackward1"), dims=pointwise, types=COMMON_TYPE, public=IN_PLACE)
def clamp(input: Array, min: Operand | None = None, max: Operand | None = None) -> Array:
    """Elements moved to the nearer bound; NaN stays, and `max` wins where the bounds cross."""
    if min is None and max is None:
        raise DTypeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    refuse_complex(input, "clamp is not supported for complex types")
    # `where` and not `maximum`: at a bound the gradient belongs to `input`, and a NaN bound gives NaN
    out = input if min is None else jnp.where((input >= min) | (input != input), input, min)
    return out if max is None else jnp.where((out <= max) | (out != out), out, max)


@maps(public=IN_PLACE)
def clamp_min(input: Array, min: Operand) -> Array:
    """Elements raised to `min`."""
    return clamp.impl(input, min)


@maps(public=IN_PLACE)
def clamp_max(input: Array, max: Operand) -> Array:
    """Elements lowered to `max`."""
    return clamp.impl(input, None, max)


# ---- functions of two numbers


def _atan2_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """Gradients `x / r**2` and `-y / r**2`; 0 at the origin."""
    square = input * input + other * other
    scaled = jnp.where(square == 0, 0, g / jnp.where(square == 0, 1, square))
    return unbroadcast(scaled * other, input), unbroadcast(-scaled * input, other)


@defop(
    dims=pointwise,
    types=Types(promote=Promote.FLOAT, autocast=ACCELERATOR_PROMOTE),
    derivative=Derivative(vjp=_atan2_vjp),
    public=IN_PLACE,
)
def atan2(input: Array, other: Array) -> Array:
    """The angle of the point with x = `other` and y = `input`."""
    require(input, "atan2_cpu", FLOAT)
    return jnp.arctan2(input, other)


def _hypot_vjp(g: Array, out: Array, input: Array, other: Array) -> tuple[Array, Array]:
    return unbroadcast(g * (input / out), input), unbroadcast(g * (other / out), other)


@maps(derivative=Derivative(vjp=_hypot_vjp), public=IN_PLACE)
def hypot(input: Array, other: Array) -> Array:
    """`sqrt(input**2 + other**2)`, without overflow of the squares."""
    require(input, "hypot_cpu", FLOAT)
    return jnp.hypot(input, other)


def _logaddexp_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """Each input's gradient is its share of the sum of the two exponentials."""
    share = lax.logistic(input - other)
    return unbroadcast(g * share, input), unbroadcast(g * (1 - share), other)


def _logaddexp2_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """Each input's gradient is its share of the sum of the two powers."""
    share = lax.logistic((input - other) * math.log(2))
    return unbroadcast(g * share, input), unbroadcast(g * (1 - share), other)


@maps(derivative=Derivative(vjp=_logaddexp_vjp))
def logaddexp(input: Array, other: Array) -> Array:
    """`log(exp(input) + exp(other))`."""
    require(input, "logaddexp_cpu", FLOAT, COMPLEX)
    if category(input) == FLOAT:
        return in_float32(jnp.logaddexp, input, other)
    first = input.real >= other.real
    high, low = jnp.where(first, input, other), jnp.where(first, other, input)
    return high + jnp.log1p(jnp.exp(low - high))  # unlike `jnp`, leaves the imaginary part unwrapped


@maps(derivative=Derivative(vjp=_logaddexp2_vjp))
def logaddexp2(input: Array, other: Array) -> Array:
    """`log2(2**input + 2**other)`."""
    require(input, "logaddexp2_cpu", FLOAT)
    return in_float32(jnp.logaddexp2, input, other)


def _xlogy_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """Gradients `log(y)`, or 0 where x = 0 >= y, and `x / y`."""
    still = (input == 0) & (other <= 0)
    log = jnp.where(still, 0, jnp.log(jnp.where(still, 1, other)))
    return unbroadcast(g * log, input), unbroadcast(g * (input / other), other)


@defop(
    types=Types(promote=Promote.FLOAT, arithmetic=Arithmetic.OWN),
    dims=pointwise,
    derivative=Derivative(vjp=_xlogy_vjp),
    public=Public(inplace=True, also=("special",)),
)
def xlogy(input: Operand, other: Operand) -> Array:
    """`input * log(other)`, and 0 where `input` is 0 unless `other` is NaN."""
    require(input, "xlogy_cpu", FLOAT)
    zero = (input == 0) & (other == other)
    return jnp.where(zero, 0, input * jnp.log(jnp.where(zero, 1, other)))


@defop(dims=pointwise, types=FLOAT_TYPE, public=IN_PLACE)
def copysign(input: Array, other: Operand) -> Array:
    """Magnitude of `input`, sign of `other`; no gradient at 0."""
    require(input, "copysign_cpu", FLOAT)
    magnitude = input * jnp.sign(input)  # unlike that of `abs`, its derivative at 0 is 0
    return magnitude * jnp.where(jnp.signbit(other), -1, 1).astype(input.dtype)


def _nextafter_vjp(g: Array, input: Array, other: Array) -> tuple[Array, Array]:
    """The gradient of `input`, as if the result were `input`; equal inputs get none."""
    return unbroadcast(jnp.where(input == other, 0, g), input), jnp.zeros_like(other)


@defop(
    types=Types(promote=Promote.COMMON, arithmetic=Arithmetic.OWN),
    dims=pointwise,
    derivative=Derivative(vjp=_nextafter_vjp),
    public=IN_PLACE,
)
def nextafter(input: Array, other: Array) -> Array:
    """The float next to `input` in the direction of `other`."""
    require(input, "nextafter_cpu", FLOAT)
    return jnp.nextafter(input, other)


@defop(
    dims=pointwise,
    public=Public(inplace=True, out="heaviside is not yet implemented for tensors with different dtypes."),
)
def heaviside(input: Array, values: Array) -> Array:
    """0 below zero, `values` at zero, 1 above; types must agree."""
    refuse_complex(input, "heaviside is not yet implemented for complex tensors.")
    if input.dtype != values.dtype:
        raise DTypeError("heaviside is not yet implemented for tensors with different dtypes.")
    return jnp.where(input == 0, values, (input > 0).astype(input.dtype))


def _common_divisor(a: Array, b: Array) -> Array:
    """Euclid's algorithm on signed remainders. `jnp.gcd` never ends at the least integer, whose `abs` overflows."""

    def step(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = pair
        left = b != 0
        return jnp.where(left, b, a), jnp.where(left, lax.rem(a, jnp.where(left, b, 1)), 0)

    first, second = jnp.broadcast_arrays(a, b)
    pair = lax.while_loop(lambda pair: jnp.any(pair[1] != 0), step, (first, second))
    return jnp.abs(pair[0])


@maps(public=IN_PLACE)
def gcd(input: Array, other: Array) -> Array:
    """Greatest common divisor."""
    require(input, "gcd_cpu", INTEGER)
    return _common_divisor(input, other)


@maps(public=IN_PLACE)
def lcm(input: Array, other: Array) -> Array:
    """Least common multiple."""
    require(input, "lcm_cpu", INTEGER)
    wide = jnp.promote_types(input.dtype, jnp.int32)  # as in C: the absolute value is taken before truncation
    a, b = (x.astype(wide) for x in jnp.broadcast_arrays(input, other))
    divisor = _common_divisor(a, b)
    return jnp.abs(lax.div(a, jnp.where(divisor == 0, 1, divisor)) * b).astype(input.dtype)


for _row, _name in ((sub, "subtract"), (mul, "multiply"), (clamp, "clip"), (atan2, "arctan2")):
    alias(_row, _name)
