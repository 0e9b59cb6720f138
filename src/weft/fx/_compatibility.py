"""A decorator by which PyTorch marks what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """A decorator that changes nothing."""
    del is_backward_compatible
    return lambda marked: marked
