"""Checks of objects that users give, which tell type checkers that a container's elements may be anything.

After `isinstance(x, list)` a checker knows nothing of the elements, and so nothing of what is done with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard


def is_sequence(x: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether this is a list or a tuple."""
    return isinstance(x, (list, tuple))


def is_dict(x: object) -> TypeGuard[dict[object, object]]:
    """Whether this is a dict."""
    return isinstance(x, dict)


def is_mapping(x: object) -> TypeGuard[Mapping[object, object]]:
    """Whether this is a mapping."""
    return isinstance(x, Mapping)
