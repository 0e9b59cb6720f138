"""What a training program reports of its own progress, for `weft top` and the launcher's metrics."""

from __future__ import annotations

from typing import Any

from weft._base.activity import process
from weft.errors import ArgumentError, ValueRangeError


def report(*, tokens: Any = 0, samples: Any = 0, **values: Any) -> None:
    """Tell the launcher what this rank has worked on, and how it goes.

    `tokens` and `samples` are the numbers worked on since the last report: `weft top` shows them per second, and adds
    up those of all ranks. All others, up to 16 of them such as `loss` or `lr`, are shown as they are. Each is a number
    or a tensor of one element; a tensor is read, so this waits until it is computed. Does nothing unless `weft run` has
    started this process. `ValueError` for negative numbers of tokens or samples, and for too many values.
    """
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


def _number(name: str, value: Any) -> float:
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor of several elements, or something else
        pass
    shape = getattr(value, "shape", None)
    got = repr(value) if shape is None else f"a tensor of shape {tuple(shape)}"
    raise ArgumentError(f"report: {name} must be a number or a tensor of one element, got {got}")
