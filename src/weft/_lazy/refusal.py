"""Errors for inputs that do not fit an operator: dims, integers, and shapes that its body cannot take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import jax

from weft._base.limits import INT64
from weft._base.types import Arg
from weft._lazy.aval import Aval
from weft._lazy.signature import Arrays
from weft.errors import ArgumentError, DTypeError, ShapeError, ValueRangeError, WeftError
from weft.ops._dims import broadcast_shapes, wrap_dim
from weft.ops._kinds import Param
from weft.ops._table import OpDef

_BROADCAST = re.compile(r"incompatible shapes for broadcasting: \(([\d, ]*)\), \(([\d, ]*)\)")


def refusal(op: OpDef, avals: tuple[Aval, ...], error: BaseException) -> WeftError:
    """The error for inputs that jax refuses in a body, with what it says of them."""
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


class Refused(Exception):
    """jax refuses the inputs of a body; the cause is its error."""


def refusing(op: OpDef, body: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """A body that raises `Refused` where jax refuses its inputs; other errors are mistakes in the body, and stay."""
    if "::" in op.name:
        return body  # of a user, who knows jax's own errors

    def fn(*arrays: jax.Array) -> Arrays:
        try:
            return body(*arrays)
        except (TypeError, ValueError, IndexError, MemoryError) as error:
            if _is_about_inputs(error):
                raise Refused from error
            raise

    return fn


def _is_about_inputs(error: Exception) -> bool:
    """Whether an error of a body comes from jax and is about shapes and types, or if there is no memory for them."""
    if isinstance(error, WeftError | jax.errors.JAXTypeError) or _WRONG_CALL.search(str(error)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    origin = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    # Where jax has called a function of the body, it hides its frames, and says so in a note.
    return isinstance(error, MemoryError) or origin.startswith("jax") or hasattr(error, "__notes__")


_WRONG_CALL = re.compile(r"\(\) (takes .* argument|missing \d+ required|got an unexpected keyword|got multiple values)")
"""How Python says that a function is called with the wrong arguments."""


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
