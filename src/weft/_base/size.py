"""The sizes of a tensor's dims."""

from __future__ import annotations

from math import prod
from typing import Any


class Size(tuple[int, ...]):
    """The sizes of a tensor's dims: a tuple that stays a `Size` when sliced, joined and repeated."""

    __slots__ = ()

    def numel(self) -> int:
        """How many elements a tensor of this size has."""
        return prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return Size((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Size:
        return Size(super().__mul__(count))

    __rmul__ = __mul__


NEW_AXIS = None
"""In an index: a new dim of size one."""
