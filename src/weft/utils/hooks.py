"""Handles of hooks, as programs with hooks of their own make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft._base.handles import RemovableHandle as RemovableHandle

Hook = TypeVar("Hook", bound=Callable[..., object])


def unserializable_hook(f: Hook) -> Hook:
    """The function itself: a tensor's hooks are never saved, and saving it does not warn of them."""
    return f


def warn_if_has_hooks(tensor: object) -> None:
    """Does nothing: a tensor's hooks are never saved, and saving it does not warn of them."""
