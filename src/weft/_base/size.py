"""The sizes of a tensor's dims."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from math import prod
from typing import Any, SupportsIndex, overload

from weft.errors import ArgumentError


class Size(tuple[int, ...]):
    """The sizes of a tensor's dims: a tuple that stays a `Size` when it is sliced, concatenated and repeated.

    `TypeError` for entries that cannot be converted to int. `size_of` skips this check for sizes that are ints.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[object] = ()) -> Size:
        return size_of(map(_int, count(), sizes))

    def numel(self) -> int:
        """The number of elements of a tensor of this size."""
        return prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Size: ...

    def __getitem__(self, index: SupportsIndex | slice) -> int | Size:
        return size_of(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def __add__(self, other: tuple[object, ...]) -> Size:
        return Size((*self, *other)) if _is_tuple(other) else NotImplemented

    def __radd__(self, other: tuple[object, ...]) -> Size:
        return Size((*other, *self)) if _is_tuple(other) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Size:
        return size_of(super().__mul__(count))

    __rmul__ = __mul__


size_of: Callable[[Iterable[int]], Size] = partial(tuple[int, ...].__new__, Size)
"""The `Size` of ints."""


def _is_tuple(other: object) -> bool:
    return isinstance(other, tuple)


def _int(at: int, size: Any) -> int:
    try:
        return int(operator.index(size))
    except TypeError:
        raise ArgumentError(f"torch.Size() takes an iterable of 'int' (item {at} is '{type(size).__name__}')") from None


NEW_AXIS = None
"""As an index: a new dim of size one."""
