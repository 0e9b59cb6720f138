"""Calls that report to the ambient capture, if a function is being compiled."""

from __future__ import annotations

from typing import Any

from weft._base.state import ambient
from weft._lazy.aval import Aval
from weft._lazy.value import Value
from weft._tensor.base import TensorBase


def leaf(aval: Aval, array: Any, *, owner: Any = None) -> Value:
    """A leaf of elements that Python has; a compiled function takes them for constants."""
    value = Value(aval, array, owner=owner)
    capture = ambient().capture
    if capture is not None:
        capture.creates_leaf(value)
    return value


def changes(tensor: TensorBase, what: str) -> None:
    """A tensor is about to change in another way than by its elements."""
    capture = ambient().capture
    if capture is not None:
        capture.changes(tensor, what)


def depends_on(what: str) -> None:
    """Report that what follows depends on something that a replay cannot know."""
    capture = ambient().capture
    if capture is not None:
        capture.needs_value(what)
