"""Arithmetic, comparisons and choices, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TypeVar

import numpy as np

from weft._lazy.interpreter.table import (
    Array,
    Binary,
    Bind,
    Function,
    Params,
    Types,
    Unary,
    computed_in,
    is_float,
    is_integer,
    primitive,
    widened,
)
from weft._lazy.native import native

F = TypeVar("F", bound=Function)
entry = partial(primitive, broadcasts=True)


def elementwise(*names: str, kernel: str = "") -> Callable[[F], F]:
    """Register a function for primitives without parameters; it receives 16-bit floats as float32.

    Where the extension has a kernel of the given name, that computes float32 numbers: in one pass, and not in one for
    each step of a formula.
    """
    compute: Function | None = getattr(native, kernel, None)

    def enter(function: F) -> F:
        def chosen(_: Params, ins: Types, outs: Types) -> Function:
            if compute is not None and computed_in(ins[0].dtype) == np.float32:
                return widened(compute, ins, outs)
            return widened(function, ins, outs)

        entry(*names)(chosen)
        return function

    return enter


for _name, _function in {
    "abs": np.absolute,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add": np.add,
    "add_any": np.add,
    "and": np.bitwise_and,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "eq": np.equal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "shift_left": np.left_shift,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}.items():
    elementwise(_name)(_function)


# --- arithmetic -----------------------------------------------------------------------------------------------


@entry("mul")
def _mul(params: Params, ins: Types, outs: Types) -> Binary:
    wider = outs[0].dtype
    if wider == ins[0].dtype:
        return widened(np.multiply, ins, outs)
    return lambda x, y: np.multiply(x.astype(wider), y.astype(wider))


@entry("div")
def _div(params: Params, ins: Types, outs: Types) -> Function:
    return _quotient if is_integer(ins[0].dtype) else widened(np.true_divide, ins, outs)


def _quotient(x: Array, y: Array) -> Array:
    """The quotient of integers, rounded towards zero; a division by zero gives a number with all bits set."""
    quotient = np.floor_divide(x, y)
    inexact = (quotient * y != x) & ((x < 0) != (y < 0))
    return np.where(y == 0, np.invert(np.zeros_like(y)), quotient + inexact)


@entry("rem")
def _rem(params: Params, ins: Types, outs: Types) -> Binary:
    if is_integer(ins[0].dtype):
        return lambda x, y: np.where(y == 0, x, np.fmod(x, y))
    return widened(np.fmod, ins, outs)


@entry("integer_pow")
def _integer_pow(params: Params, ins: Types, outs: Types) -> Function:
    """Powers by repeated squaring, with the products that XLA computes, since each product is rounded."""
    exponent = params["y"]
    multiply = widened(np.multiply, [ins[0], ins[0]], outs)
    divide = widened(np.true_divide, [ins[0], ins[0]], outs)

    def power(x: Array) -> Array:
        result, base, rest = None, x, abs(exponent)
        while rest:
            if rest & 1:
                result = base if result is None else multiply(result, base)
            rest >>= 1
            base = multiply(base, base) if rest else base
        one = np.ones((), x.dtype)
        result = np.broadcast_to(one, x.shape) if result is None else result
        return result if exponent > 0 else divide(one, result) if exponent else result.copy()

    return {2: partial(_twice, multiply), 1: np.positive}.get(exponent, power)


def _twice(multiply: Function, x: Array) -> Array:
    return multiply(x, x)


@entry("pow")
def _pow(params: Params, ins: Types, outs: Types) -> Binary:
    base, exponent = (t.dtype for t in ins)
    function = widened(np.power, ins, outs)
    if is_integer(exponent):
        return lambda x, y: function(x, y.astype(base))
    return function


@elementwise("rsqrt")
def _rsqrt(x: Array) -> Array:
    return np.reciprocal(np.sqrt(x))


@elementwise("logistic", kernel="logistic")
def _logistic(x: Array) -> Array:
    return np.reciprocal(np.exp(np.negative(x)) + 1)


# --- signs, bounds and neighbours -----------------------------------------------------------------------------


@entry("sign")
def _sign(params: Params, ins: Types, outs: Types) -> Function:
    return widened(_signed, ins, outs) if is_float(ins[0].dtype) else np.sign


def _signed(x: Array) -> Array:
    return np.copysign(np.sign(x), x)


@entry("round")
def _round(params: Params, ins: Types, outs: Types) -> Function:
    to_even = params["rounding_method"].name == "TO_NEAREST_EVEN"
    return widened(np.rint if to_even else _round_away, ins, outs)


def _round_away(x: Array) -> Array:
    """To the nearest integer; halves away from zero."""
    whole = np.trunc(x)
    return whole + np.copysign((np.absolute(x - whole) >= 0.5).astype(x.dtype), x)


@entry("nextafter")
def _nextafter(params: Params, ins: Types, outs: Types) -> Binary:
    if ins[0].dtype == np.float16:  # NumPy's function returns x where x == y, also for 0 and -0
        return lambda x, y: np.where(x == y, y, np.nextafter(x, y))
    return np.nextafter


@elementwise("clamp")
def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(low, x), high)


# --- bits -----------------------------------------------------------------------------------------------------


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"u{dtype.itemsize}")


def _shifts_right(kind: str) -> Bind:
    """Bind shifts to the right that take integers as signed (`kind` "i") or unsigned ("u")."""

    def bind(params: Params, ins: Types, outs: Types) -> Binary:
        dtype = ins[0].dtype
        if dtype.kind == kind:
            return np.right_shift
        other = f"{kind}{dtype.itemsize}"
        return lambda x, y: np.right_shift(x.view(other), y.view(other)).view(dtype)

    return bind


entry("shift_right_arithmetic")(_shifts_right("i"))
entry("shift_right_logical")(_shifts_right("u"))


@entry("population_count")
def _population_count(params: Params, ins: Types, outs: Types) -> Unary:
    bits, dtype = _unsigned(ins[0].dtype), outs[0].dtype
    return lambda x: np.bitwise_count(x.view(bits)).astype(dtype)


@entry("clz")
def _leading_zeros(params: Params, ins: Types, outs: Types) -> Function:
    dtype, bits = outs[0].dtype, _unsigned(ins[0].dtype)
    width = 8 * dtype.itemsize

    def leading_zeros(x: Array) -> Array:
        high, low = np.divmod(x.view(bits).astype(np.uint64), np.uint64(2**32))
        length = np.where(high > 0, _length(high) + 32, _length(low))
        return (width - length).astype(dtype)

    return leading_zeros


def _length(x: Array) -> Array:
    """The bit lengths of numbers below 2**32."""
    return np.frexp(x.astype(np.float64))[1]


# --- order ----------------------------------------------------------------------------------------------------


def _total_order(compare: Binary) -> Bind:
    def bind(params: Params, ins: Types, outs: Types) -> Binary:
        if not is_float(ins[0].dtype):
            return compare
        return lambda x, y: compare(_rank(x), _rank(y))

    return bind


def _rank(x: Array) -> Array:
    """Integers that are ordered as the floats `x` are: negative NaN, -inf, …, -0, 0, …, inf, NaN."""
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


for _name, _function in {"eq_to": np.equal, "le_to": np.less_equal, "lt_to": np.less}.items():
    entry(_name)(_total_order(_function))


@entry("select_n")
def _select_n(params: Params, ins: Types, outs: Types) -> Function:
    if len(ins) == 2:
        return _only_case
    return _yes_or_no if ins[0].dtype.kind == "b" else _case


def _only_case(_: Array, case: Array) -> Array:
    return case.copy()


def _yes_or_no(which: Array, no: Array, yes: Array) -> Array:
    return np.where(which, yes, no)


def _case(which: Array, *cases: Array) -> Array:
    return np.choose(which, cases, mode="clip")


# --- complex numbers ------------------------------------------------------------------------------------------


@entry("conj")
def _conj(params: Params, ins: Types, outs: Types) -> Unary:
    dtype = outs[0].dtype
    return np.conjugate if ins[0].dtype == dtype else lambda x: x.astype(dtype)


@entry("complex")
def _complex(params: Params, ins: Types, outs: Types) -> Function:
    shape, dtype = outs[0]

    def join(real: Array, imag: Array) -> Array:
        result = np.empty_like(real, dtype, shape=shape)
        result.real, result.imag = real, imag
        return result

    return join


@primitive("real", view=True)
def _real(params: Params, ins: Types, outs: Types) -> Unary:
    return attrgetter("real")


@primitive("imag", view=True)
def _imag(params: Params, ins: Types, outs: Types) -> Unary:
    return attrgetter("imag")
