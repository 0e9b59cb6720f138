"""Numbers that PyTorch's compiler does not know yet. Sizes are plain numbers here, so there are none.

The classes are for `isinstance`; the functions compute on Python's numbers.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import TypeVar


class SymInt:
    """No object is of this class: sizes are of type `int`."""


class SymFloat:
    """No object is of this class: numbers computed from sizes are of type `float`."""


Number = int | float
T = TypeVar("T")


class SymBool:
    """No object is of this class: conditions on sizes are of type `bool`."""


def sym_int(a: Number) -> int:
    """A number without its fraction."""
    return int(a)


def sym_float(a: Number) -> float:
    """A number as `float`."""
    return float(a)


def sym_not(a: object) -> bool:
    """The negation."""
    return not a


def sym_max(a: Number, b: Number) -> Number:
    """The larger of two numbers: a float if one of them is."""
    return _promoted(max(a, b), a, b)


def sym_min(a: Number, b: Number) -> Number:
    """The smaller of two numbers: a float if one of them is."""
    return _promoted(min(a, b), a, b)


def _promoted(number: Number, *operands: Number) -> Number:
    return float(number) if any(isinstance(x, float) for x in operands) else number


def sym_sum(args: Iterable[Number]) -> Number:
    """The sum of numbers."""
    return builtins.sum(args)


def sym_ite(b: object, t: T, f: T) -> T:
    """`t` if `b` is true, else `f`."""
    return t if b else f


def sym_sqrt(a: Number) -> float:
    """The square root of a number."""
    return math.sqrt(a)
