"""Layouts: how the elements of arrays lie in memory."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

Shape = tuple[int, ...]
Layout = tuple[Shape, Shape, np.dtype]
"""(shape, strides in bytes, dtype)."""


@lru_cache(maxsize=4096)  # key: shape, size of an element
def dense(shape: Shape, itemsize: int) -> Shape:
    """The strides of an array whose elements follow each other."""
    strides = [itemsize] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    return tuple(strides)


def is_dense(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """Whether elements follow each other; strides of dims with one element do not matter."""
    if strides == dense(shape, itemsize) or 0 in shape:
        return True
    pairs = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for size, stride in reversed(pairs):
        if stride != itemsize:
            return False
        itemsize *= size
    return True


def dense_layout(shape: Shape, dtype: np.dtype) -> Layout:
    """The layout of an array whose elements follow each other."""
    return shape, dense(shape, dtype.itemsize), dtype


def extent(shape: Shape, strides: Shape, itemsize: int) -> tuple[int, int]:
    """The bytes that an array's elements take, and where the first one is in these."""
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    before = -sum([step for step in steps if step < 0])
    return before + sum([step for step in steps if step > 0]) + itemsize, before


class Shadow:
    """Memory as large as a buffer, which nobody reads or writes.

    memory   its bytes
    first    where in them the buffer's offset 0 is: elements of an input may lie before its first one
    address  of that
    """

    __slots__ = ("address", "first", "memory")

    def __init__(self, size: int, first: int) -> None:
        self.memory = np.empty(max(size, 1), np.uint8)
        self.first = first
        self.address: int = self.memory.__array_interface__["data"][0] + first
