"""Tensors of a file that share their elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft._base.dtype import DType
from weft._base.state import using
from weft._tensor.alias import layout_of
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Tensor
from weft.ops._strides import Layout

MOST_DIMS = 64
MOST_SIZE = 1 << 63


def is_shape(shape: tuple[int, ...]) -> bool:
    """Whether these are valid sizes of a tensor. With more or larger numbers, their product could take for ever."""
    if len(shape) > MOST_DIMS:
        return False
    for size in shape:  # a loop, since a file may have a million shapes  # noqa: SIM110
        if type(size) is not int or not 0 <= size < MOST_SIZE:
            return False
    return True


def placed(shape: tuple[int, ...], stride: Sequence[int], offset: int, dtype: DType, nbytes: int) -> Layout:
    """A layout in a storage of `nbytes` bytes.

    `ValueError` if it is invalid, leads out of the storage, or has more elements than that, which could fill the
    memory.
    """
    numbers = [*stride, offset]
    if len(stride) != len(shape) or not all(type(n) is int and 0 <= n < MOST_SIZE for n in numbers):
        raise ValueError(f"it has a tensor of shape {list(shape)} with impossible strides {stride} or offset {offset}")
    places = Layout(shape, tuple(stride), offset, dtype)
    if max((offset + places.extent) * bool(places.extent), prod(shape)) * dtype.itemsize > nbytes:
        raise ValueError(f"it has a tensor of shape {list(shape)} with strides {stride} that leads out of its storage")
    return places


def view_of_storage(storage: Tensor, places: Layout) -> Tensor:
    """The tensor with this layout in a storage; no derivative is recorded."""
    whole = layout_of(storage)
    if (whole.sizes, whole.strides, whole.offset, whole.dtype) == (
        places.sizes,
        places.strides,
        places.offset,
        places.dtype,
    ):
        return storage.detach()
    with using(grad=False):
        return strided_view(storage, places.sizes, places.strides, places.offset, dtype=places.dtype)
