"""Layouts: how the elements of arrays lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from weft._base.types import Arg

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
    if not shape or strides == dense(shape, itemsize) or 0 in shape:
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


@lru_cache(maxsize=4096)  # key: shapes
def broadcast(*shapes: Shape) -> Shape:
    """The shape to which NumPy broadcasts these."""
    return np.broadcast_shapes(*shapes)


@lru_cache(maxsize=4096)  # key: layouts of the operands, types of the results
def strides_of_results(operands: tuple[Layout, ...], dtypes: tuple[np.dtype, ...]) -> Sequence[Shape]:
    """The strides of the arrays that NumPy makes for what it computes element by element."""
    shadows = [stand_in(*operand) for operand in operands]
    flags: Arg = [*[["readonly"]] * len(shadows), *[["writeonly", "allocate"]] * len(dtypes)]
    types: Arg = [*[None] * len(shadows), *dtypes]
    iterator = np.nditer([*shadows, *[None] * len(dtypes)], ["zerosize_ok", "refs_ok"], flags, types)
    return [array.strides for array in iterator.operands[len(shadows) :]]


def stand_in(shape: Shape, strides: Shape, dtype: np.dtype) -> np.ndarray:
    """An array that lies in this way, of elements that mean nothing."""
    if 0 in shape:
        return np.empty(shape, dtype)
    size, first = extent(shape, strides, dtype.itemsize)
    return np.ndarray(shape, dtype, np.empty(size, np.uint8), first, strides)


class Shadow:
    """Memory as large as a buffer, which nobody reads or writes.

    memory  its bytes
    first   where in them the buffer's offset 0 is: elements of an input may lie before its first one
    """

    __slots__ = ("first", "memory")

    def __init__(self, size: int, first: int) -> None:
        self.memory = np.empty(max(size, 1), np.uint8)
        self.first = first
