"""Questions about containers whose answers type checkers understand: what is in them may be anything.

After `isinstance(x, dict)`, a checker takes keys and values for a mistake instead. Where the question is asked for each
operator, it stays `isinstance`, with a constant of this module: a call takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from weft._base.types import Arg

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in `typing` from Python 3.13 on

T = TypeVar("T")


LIST_OR_TUPLE: tuple[type, ...] = (list, tuple)
LIST: type = list
TUPLE: type = tuple
DICT: type = dict
SLICE: type = slice
SEQUENCE: type = Sequence
ITERABLE: type = Iterable
"""For `isinstance` of an `Arg`, where each operator asks: type checkers do not look into them, so it stays an `Arg`."""


def is_a(x: object, *kinds: type[T]) -> TypeGuard[T]:
    """`isinstance`, for classes that take type parameters which have defaults, such as NumPy's arrays."""
    return isinstance(x, kinds)


def is_dict(x: object) -> TypeIs[dict[Arg, Arg]]:
    """Whether `x` is a dict, or of a class derived from it."""
    return isinstance(x, dict)


def is_plain_dict(x: object) -> TypeGuard[dict[Arg, Arg]]:
    """Whether `x` is a dict, and of no derived class."""
    return type(x) is dict


def is_mapping(x: object) -> TypeIs[Mapping[Arg, Arg]]:
    """Whether `x` maps keys to values."""
    return isinstance(x, Mapping)


def is_tuple(x: object) -> TypeIs[tuple[Arg, ...]]:
    """Whether `x` is a tuple, or of a class derived from it."""
    return isinstance(x, tuple)


def is_plain_tuple(x: object) -> TypeGuard[tuple[Arg, ...]]:
    """Whether `x` is a tuple, and of no derived class."""
    return type(x) is tuple


def is_plain_list(x: object) -> TypeGuard[list[Arg]]:
    """Whether `x` is a list, and of no derived class."""
    return type(x) is list


def is_list(x: object) -> TypeIs[list[Arg]]:
    """Whether `x` is a list, or of a class derived from it."""
    return isinstance(x, list)


def is_list_or_tuple(x: object) -> TypeIs[list[Arg] | tuple[Arg, ...]]:
    """Whether `x` is a list or a tuple, or of a derived class."""
    return isinstance(x, (list, tuple))


def is_sequence(x: object) -> TypeIs[Sequence[Arg]]:
    """Whether `x` has elements in an order."""
    return isinstance(x, Sequence)


def is_slice(x: object) -> TypeIs[slice[Arg, Arg, Arg]]:
    """Whether `x` is a slice."""
    return isinstance(x, slice)


def is_iterable(x: object) -> TypeIs[Iterable[Arg]]:
    """Whether `x` can be iterated over."""
    return isinstance(x, Iterable)


def is_mutable_mapping(x: object) -> TypeIs[MutableMapping[Arg, Arg]]:
    """Whether `x` maps keys to values, and can be changed."""
    return isinstance(x, MutableMapping)


def is_list_or_tuple_of(x: object, kind: type[T]) -> TypeGuard[list[T] | tuple[T, ...]]:
    """Whether `x` is a list or a tuple whose elements are all of a class."""
    return is_list_or_tuple(x) and all(isinstance(one, kind) for one in x)


def is_int(x: object) -> TypeGuard[int]:
    """Whether `x` is an integer, and no truth value, which Python takes for one."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_number(x: object) -> TypeGuard[int | float]:
    """Whether `x` is an integer or a float, and no truth value."""
    return isinstance(x, float) or is_int(x)
