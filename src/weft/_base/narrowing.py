"""Checks of objects that users give, which tell type checkers that a container's elements may be anything.

After `isinstance(x, list)` a checker knows nothing of the elements, and so nothing of what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TypeGuard, TypeVar

from weft._base.types import Arg

T = TypeVar("T")


def is_sequence(x: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether this is a list or a tuple."""
    return isinstance(x, (list, tuple))


def is_sequence_of(x: object, kind: type[T]) -> TypeGuard[list[T] | tuple[T, ...]]:
    """Whether this is a list or a tuple of objects of a class."""
    return is_sequence(x) and all(isinstance(one, kind) for one in x)


def is_list(x: object) -> TypeGuard[list[object]]:
    """Whether this is a list."""
    return isinstance(x, list)


def is_dict(x: object) -> TypeGuard[dict[Arg, Arg]]:
    """Whether this is a dict."""
    return isinstance(x, dict)


def is_iterable(x: object) -> TypeGuard[Iterable[object]]:
    """Whether this can be iterated over."""
    return isinstance(x, Iterable)


def is_mapping(x: object) -> TypeGuard[Mapping[Arg, Arg]]:
    """Whether this is a mapping."""
    return isinstance(x, Mapping)


def is_mutable_mapping(x: object) -> TypeGuard[MutableMapping[Arg, Arg]]:
    """Whether this is a mapping that can be changed."""
    return isinstance(x, MutableMapping)


def is_int(x: object) -> TypeGuard[int]:
    """Whether this is an integer, and not a truth value, which Python takes for one."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_number(x: object) -> TypeGuard[int | float]:
    """Whether this is an integer or a float, and not a truth value."""
    return isinstance(x, float) or is_int(x)


def is_tuple(x: object) -> TypeGuard[tuple[object, ...]]:
    """Whether this is a tuple."""
    return isinstance(x, tuple)
