"""Functions that report to the active capture, if a function is being compiled."""

from __future__ import annotations

from typing import Any

from weft._base.state import ambient
from weft._lazy.aval import Aval
from weft._lazy.sites import noted
from weft._lazy.value import Value, tick
from weft._tensor.base import TensorBase


def leaf(aval: Aval, array: Any, *, owner: Any = None) -> Value:
    """A leaf with elements given by Python, which are constants of a compiled function."""
    value = noted(Value(aval, array, owner=owner))
    value.time = tick()
    capture = ambient().capture
    if capture is not None:
        capture.creates_leaf(value)
    return value


def changes(tensor: TensorBase, what: str) -> None:
    """Report that something of a tensor other than its elements will change."""
    capture = ambient().capture
    if capture is not None:
        capture.changes(tensor, what)


def depends_on(what: str, advice: str = "") -> None:
    """Report that later results depend on something that a replay cannot know, and what helps if it must be known."""
    capture = ambient().capture
    if capture is not None:
        capture.needs_value(what, advice)
