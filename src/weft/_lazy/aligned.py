"""Memory on the host at addresses that XLA can use without a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft._base.device import CPU
from weft._lazy.runtime import telling_of_memory

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
"""XLA can use host memory without a copy if its address is a multiple of this."""

_LEAST_ALIGNED = 1 << 12  # elements from which on a second copy costs more than aligned memory


def address_of(array: Array) -> int:
    """The address of the first byte. `array.ctypes.data` takes several times as long."""
    return array.__array_interface__["data"][0]


def room(size: int, new: Callable[..., Array] = np.empty) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Aligned memory of `size` bytes, which an array may use without a copy; by default uninitialised."""
    with telling_of_memory(CPU):
        whole = new(size + ALIGNMENT, np.uint8)
    start = -address_of(whole) % ALIGNMENT
    return whole[start : start + size]


def room_like(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for an array of this shape and NumPy type; aligned by `room` if that pays."""
    count = prod(shape)
    if count < _LEAST_ALIGNED:
        return np.empty(shape, dtype)
    return room(count * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def copied(array: Array) -> Array:
    """A dense copy of an array, in memory that XLA can use."""
    result = room_like(array.shape, array.dtype)
    result[...] = array
    return result
