"""What a training program reports of its own progress, for `weft top` and the launcher's metrics."""

from __future__ import annotations

from math import prod

from weft._base.activity import process
from weft._base.types import Arg
from weft.errors import ArgumentError, ValueRangeError


def report(*, tokens: object = 0, samples: object = 0, **values: object) -> None:
    """Tell the launcher what this rank has worked on, and how it goes.

    `tokens` and `samples` are the numbers worked on since the last report: `weft top` shows them per second, and adds
    up those of all ranks. All others, up to 16 of them such as `loss` or `lr`, are shown as they are. Each is a number
    or a tensor of one element, `TypeError` for anything else; a tensor is read, so this waits until it is computed.
    Reads nothing unless `weft run` has started this process. `ValueError` for negative numbers of tokens or samples,
    and for too many values.
    """
    for name, value in (("tokens", tokens), ("samples", samples), *values.items()):
        _require_number(name, value)
    activity = process.activity
    if activity is None:
        return
    for kind, amount in (("tokens", tokens), ("samples", samples)):
        if (count := _number(kind, amount)) < 0:
            raise ValueRangeError(f"report: {kind} must be the number since the last report, got {count:g}")
        if count:
            activity.count(kind, count)
    for name, value in values.items():
        if not activity.value(name, _number(name, value)):
            raise ValueRangeError(f"report: {name} is one value too many; a rank can report 16 under different names")


def _require_number(name: str, value: Arg) -> None:
    """`TypeError` for what is no number by its type and shape, which are known before it is computed."""
    shape = getattr(value, "shape", None)
    is_number = hasattr(value, "__float__") or hasattr(value, "__index__")
    if not is_number or (shape is not None and prod(shape) != 1):
        raise _refusal(name, value)


def _number(name: str, value: Arg) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # a complex tensor, or something else that has no such number
        raise _refusal(name, value) from None


def _refusal(name: str, value: Arg) -> ArgumentError:
    shape = getattr(value, "shape", None)
    got = repr(value) if shape is None else f"a tensor of shape {tuple(shape)}"
    return ArgumentError(f"report: {name} must be a number or a tensor of one element, got {got}")
