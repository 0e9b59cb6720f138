"""Python numbers as values, and whether they fit a type."""

from __future__ import annotations

import math
import numbers

import jax.numpy as jnp
import numpy as np

from weft._base.dtype import BOOL, COMPLEX, INTEGER, DType, bool_, complex128, float64, int64, uint64
from weft._base.limits import INT64, limits
from weft._base.numpy_guards import NUMPY_NUMBER
from weft._base.types import AnyCallable, Arg
from weft._lazy.aval import aval_of
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.overriding import require_not_overridden
from weft.errors import ArgumentError, DTypeError, IntegerRangeError
from weft.ops._kinds import Scalar
from weft.ops._type_names import c_name

Number = bool | int | float | complex

_WEAK = {
    kind: aval_of((), dtype, weak=True)
    for kind, dtype in ((bool, bool_), (int, int64), (float, float64), (complex, complex128))
}
_COMPLEX: tuple[type, ...] = (complex, np.complexfloating)
_ABSTRACT: tuple[tuple[AnyCallable, type], ...] = (
    (bool, np.bool_),
    (int, numbers.Integral),
    (float, numbers.Real),
    (complex, numbers.Complex),
)


if native is not None:
    native.bind(weak=_WEAK)


def number(x: Arg, name: str = "", op: str = "") -> Value:
    """A leaf for a Python (or NumPy) number. Its type is weak: the types of tensors win in promotion."""
    aval = _WEAK.get(type(x))  # pyright: ignore[reportUnknownArgumentType]  of anything
    if aval is None:
        if isinstance(x, NUMPY_NUMBER):
            return number(x.item())
        for kind, abstract in _ABSTRACT:
            if isinstance(x, abstract):
                return number(kind(x))
        require_not_overridden(x)
        expected = f"{op}(): argument '{name}' must be Tensor, not" if op else "expected a Tensor or a number, got"
        raise ArgumentError(f"{expected} {kind_and_advice(x)}")
    if aval.dtype is int64 and x not in INT64:
        return _unsigned(x)
    return Value(aval, x)


def _unsigned(x: int) -> Value:
    """A leaf for an integer above int64's range that fits uint64; `OverflowError` for others."""
    if x < 0:
        raise IntegerRangeError(f"can't convert negative int to unsigned: {x} fits neither int64 nor uint64")
    if x >= 2**64:
        raise IntegerRangeError(f"int too big to convert: {x} fits neither int64 nor uint64")
    return Value(aval_of((), uint64), jnp.asarray(x, uint64.numpy))


def fitting(x: Scalar, dtype: DType) -> Scalar:
    """A number as an element of a type; a real type drops a zero imaginary part.

    `RuntimeError` if this would lose anything else. In unsigned types, negative numbers wrap around.
    """
    if type(x) is float and dtype.is_floating_point and abs(x) <= limits(dtype)[1]:  # at once, as most are
        return x
    if not _fits(x, dtype):
        word = f"{dtype.name}_t" if dtype.category == INTEGER else c_name(dtype)
        raise DTypeError(f"value cannot be converted to type {word} without overflow")
    if not isinstance(x, _COMPLEX) or dtype.category == COMPLEX:
        return x
    return x != 0 if dtype.category == BOOL else x.real


def _fits(x: Arg, dtype: DType) -> bool:
    if isinstance(x, numbers.Integral):
        number(int(x))  # raises for integers beyond uint64
    if dtype.category == COMPLEX:
        return _fits(x.real, dtype.to_real()) and _fits(x.imag, dtype.to_real())
    if dtype.category == BOOL:
        return True
    if isinstance(x, complex):
        return x.imag == 0 and _fits(x.real, dtype)
    least, most = limits(dtype)
    if dtype.category == INTEGER:
        return math.isfinite(x) and (least or -most) <= int(x) <= most
    return not math.isfinite(x) or abs(x) <= most
