"""Checks of what users give, which tell a type checker neither more nor less than is known.

After `isinstance(x, dict)`, it would not know what the dict holds, and where an annotation already promises a type, it
would call the check unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft._base.types import Arg

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_a(x: object, *kinds: type) -> bool:
    """Whether an argument has one of the types that its annotation promises."""
    return isinstance(x, kinds)


def is_dict(x: object) -> TypeIs[dict[Arg, Arg]]:
    """Whether it is a dict."""
    return isinstance(x, dict)


def is_tuple(x: object) -> TypeIs[tuple[Arg, ...]]:
    """Whether it is a tuple."""
    return isinstance(x, tuple)


def is_list(x: object) -> TypeIs[list[Arg]]:
    """Whether it is a list."""
    return isinstance(x, list)


def is_list_or_tuple(x: object) -> TypeIs[list[Arg] | tuple[Arg, ...]]:
    """Whether it is a list or a tuple."""
    return isinstance(x, (list, tuple))


def is_sequence(x: object) -> TypeIs[Sequence[Arg]]:
    """Whether it is a sequence."""
    return isinstance(x, Sequence)


def is_iterable(x: object) -> TypeIs[Iterable[Arg]]:
    """Whether it is iterable."""
    return isinstance(x, Iterable)


def is_mapping(x: object) -> TypeIs[Mapping[Arg, Arg]]:
    """Whether it is a mapping."""
    return isinstance(x, Mapping)
