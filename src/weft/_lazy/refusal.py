"""Errors for inputs that do not fit an operator: dims, integers, and shapes that its body cannot take."""

from __future__ import annotations

import re
from typing import Any, cast

from weft._base.limits import INT64
from weft._base.types import Arg
from weft._lazy.aval import Aval
from weft.errors import ArgumentError, DTypeError, ShapeError, ValueRangeError
from weft.ops._dims import broadcast_shapes, wrap_dim
from weft.ops._kinds import Param
from weft.ops._table import OpDef

_BROADCAST = re.compile(r"incompatible shapes for broadcasting: \(([\d, ]*)\), \(([\d, ]*)\)")


def refusal(op: OpDef, avals: tuple[Aval, ...], error: Exception) -> Exception:
    """The error for inputs that a body could not take; an error in a user's body is returned unchanged."""
    if "::" in op.name:
        return error
    reason = str(error).split("\n", 1)[0]
    if isinstance(error, MemoryError):
        return ShapeError(f"{op.name}(): can't allocate memory: {reason or 'tables of positions are too large'}")
    shapes = _BROADCAST.search(reason)
    if shapes is not None:
        try:
            broadcast_shapes(*(tuple(map(int, filter(str.strip, text.split(",")))) for text in shapes.groups()))
        except ShapeError as misfit:
            return misfit
    kind = DTypeError if isinstance(error, TypeError) and "shape" not in reason else ShapeError
    return kind(f"{op.name}(): cannot be applied to ({', '.join(map(repr, avals))}): {reason}")


def require_one_int64(op: str, name: str, entry: int) -> None:
    """Raise `ValueError` for an integer beyond int64."""
    if entry not in INT64:
        raise ValueRangeError(f"Overflow when unpacking long long: argument '{name}' of {op}() is {entry}")


def require_int64(op: str, param: Param, entry: object) -> None:
    """Raise `ValueError` for an integer beyond int64, and `TypeError` for such a size."""
    if isinstance(entry, int):
        require_one_int64(op, param.name, entry)
    elif isinstance(entry, tuple):
        for at, part in enumerate(cast("tuple[Any, ...]", entry), 1):
            if isinstance(part, int) and part not in INT64:
                raise ArgumentError(
                    f"{op}(): argument '{param.name}' failed to unpack the object at pos {at} with error "
                    f'"Overflow when unpacking long long": {part}'
                )


def require_dim(dim: Arg, ndim: int, argument: str = "a dim") -> int:
    """A dim, which may be any integer, counted from the front; `IndexError` or `TypeError` in PyTorch's words."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise ArgumentError(f"{argument} must be int, not {type(dim).__name__}: {dim!r}")
    return wrap_dim(dim.__index__(), ndim)
