"""Elementwise functions whose row depends on the types of their arguments."""

from __future__ import annotations

from weft._base.dtype import DType, bool_, complex128, float16, float64, uint8
from weft._base.numpy_guards import NUMPY_NUMBER
from weft._base.types import Arg
from weft._lazy.precision import is_half
from weft._tensor.arguments import not_implemented
from weft._tensor.codegen import op
from weft._tensor.composite.create import number_of, ones_like
from weft._tensor.functions import composite
from weft._tensor.output import write_out
from weft._tensor.scalar import Number
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft.errors import ArgumentError, DTypeError, UnsupportedDTypeError
from weft.ops._table import IN_PLACE, NO_FUNCTION, NO_METHOD, Public
from weft.ops._type_names import scalar_name


def _is_operand(value: object) -> bool:
    return isinstance(value, _OPERANDS)


_OPERANDS: tuple[type, ...] = (Tensor, bool, int, float, complex, NUMPY_NUMBER)


@composite(public=IN_PLACE)
def div(
    input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor:
    """`input / other`, rounded as `rounding_mode` says: None, "trunc" or "floor"."""
    if rounding_mode is None:
        return op.true_divide(input, other, out=out)
    if rounding_mode == "floor":
        return op.floor_divide(input, other, out=out)
    if rounding_mode == "trunc":
        return op.div_trunc(input, other, out=out)
    raise DTypeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


composite("divide", public=IN_PLACE)(div)


@composite("__rtruediv__", public=NO_FUNCTION)
def reflected_division(input: Tensor, dividend: object) -> Results:
    """`dividend / input`, computed as in PyTorch: the rounded reciprocal times the number."""
    return op.reciprocal(input).__mul__(dividend)


composite("__rdiv__", public=NO_FUNCTION)(reflected_division)


def _absolute(name: str) -> None:
    """Define an in-place form of `abs`, which refuses complex numbers."""

    @composite(name, doc="In-place version of `abs`.")
    def absolute(input: Tensor) -> Tensor:
        if input.is_complex():
            raise DTypeError("In-place abs is not supported for complex tensors.")
        return write(input, op.abs(input)._read())


for _name in ("abs_", "absolute_"):
    _absolute(_name)


# ---- functions that give the tensor itself where they change nothing


@composite(public=Public(dunder=("__pos__",)))
def positive(input: Tensor) -> Tensor:
    """`input` itself; `DTypeError` for booleans."""
    if input.dtype is bool_:
        raise DTypeError("The `+` operator, on a bool tensor is not supported.")
    return input


@composite(public=NO_METHOD)
def real(input: Tensor) -> Tensor:
    """The real part."""
    return op.real(input) if input.is_complex() else input


@composite()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate."""
    return op.conj(input) if input.is_complex() else input


@composite(public=IN_PLACE)
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate as a new tensor, not a view."""
    return op.conj_physical(input, out=out) if out is not None or input.is_complex() else input


# ---- powers: a small exponent is a constant of the program, so that squares are products; others are its inputs

_BY_PRODUCTS = frozenset({*range(-4, 5), -0.5, 0.5})
"""The exponents of floating types that need no logarithm."""


def _is_constant(exponent: object, dtype: DType) -> bool:
    """Whether a power is computed with the exponent as a constant. There are few such exponents."""
    return exponent in _BY_PRODUCTS if dtype.is_differentiable else type(exponent) is int and exponent < 64


@composite(public=IN_PLACE)
def pow(input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """`input ** exponent`."""
    if isinstance(exponent, NUMPY_NUMBER):
        exponent = number_of(exponent)
    if any(
        isinstance(a, Tensor) and a.dtype is float16 and isinstance(b, complex)
        for a, b in ((input, exponent), (exponent, input))
    ):
        raise UnsupportedDTypeError("\"pow\" not implemented for 'ComplexHalf'")
    if isinstance(input, Tensor) and input.dtype is bool_ and isinstance(exponent, bool):
        result = op.clone(input) if exponent else ones_like(input)
        return result if out is None else write_out(out, result)
    whole = type(exponent) is int
    if isinstance(input, Tensor) and (whole or type(exponent) is float) and _is_constant(exponent, input.dtype):
        if is_half(input.dtype.numpy) and not whole:
            exponent = float(input.dtype.numpy.type(exponent))  # rounded to the type of the tensor
        return op.pow_number(input, exponent, out=out)
    return op.pow(input, exponent, out=out)


@composite("__invert__", public=NO_FUNCTION)
def invert(input: Tensor) -> Tensor:
    """Every bit inverted; for booleans, the logical not."""
    if input.dtype.is_differentiable:
        raise ArgumentError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return op.bitwise_not(input)


@composite("__pow__", public=NO_FUNCTION)
def power(input: Tensor, exponent: object) -> Results:
    """`input ** exponent`."""
    return pow(input, exponent) if _is_operand(exponent) else not_implemented(exponent, "pow")


@composite("__rpow__", public=NO_FUNCTION)
def reflected_power(input: Tensor, base: object) -> Results:
    """`base ** input`."""
    return pow(base, input) if _is_operand(base) else not_implemented(base, "pow")


@composite("__ipow__", public=NO_FUNCTION)
def inplace_power(input: Arg, exponent: Arg) -> Results:
    """`input **= exponent`."""
    return input.pow_(exponent) if _is_operand(exponent) else not_implemented(exponent, "pow_")


@composite(
    public=Public(out="the output given to float_power has dtype {1} but the operation's result requires dtype {0}")
)
def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """`input ** exponent` in float64, or in complex128 if an argument is complex."""
    pair = (input, exponent)
    wide = _wide(*pair)
    base, power = (op.to_dtype(x, wide) if isinstance(x, Tensor) else x for x in pair)
    return pow(base, power)


def _wide(*pair: object) -> DType:
    return complex128 if any(map(_is_complex, pair)) else float64


@composite("float_power_", public=NO_FUNCTION)
def float_power_(input: Tensor, exponent: Tensor | Number) -> Tensor:
    """In-place `float_power`, of a tensor that has the result's type."""
    wide = _wide(input, exponent)
    if input.dtype is not wide:
        raise DTypeError(
            f"the base given to float_power_ has dtype {scalar_name(input.dtype)} but the operation's result requires "
            f"dtype {scalar_name(wide)}"
        )
    return input.pow_(exponent)


def _is_complex(value: object) -> bool:
    return value.dtype.is_complex if isinstance(value, Tensor) else isinstance(value, complex)


# ---- functions whose method has another order of arguments


@composite(public=NO_METHOD)
def where(condition: Tensor, input: object = None, other: object = None, *, out: Tensor | None = None) -> Results:
    """`input` where `condition` is true, else `other`; without these, the indices of the true elements."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype is uint8:
        condition = op.to_dtype(condition, bool_)
    if condition.dtype is not bool_:
        raise DTypeError(
            "where expected condition to be a boolean tensor, "
            f"but got a tensor with dtype {scalar_name(condition.dtype)}"
        )
    return op.where(condition, input, other, out=out)


@composite("where_method", public=Public(function=False, method="where"))
def where_method(input: Tensor, condition: Tensor, other: object) -> Tensor:
    """`input` where `condition` is true, else `other`."""
    return where(condition, input, other)


@composite("polygamma_method", public=Public(function=False, method="polygamma"))
def polygamma_method(input: Tensor, n: int) -> Tensor:
    """The derivative of order `n` of `digamma`."""
    return op.polygamma(n, input)
