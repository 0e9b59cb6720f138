"""NumPy arrays whose elements a tensor shows.

Values are immutable, so a tensor has a copy of an array's elements. That both show the same is kept up from both sides:
while the tensor, or one that shares its storage, is there, NumPy may not write to the array, which raises `ValueError`;
and what is written to the tensor is copied to the array at once. Other views of the same memory, which cannot be found,
can still be written to; then there is a warning when the tensor is written to, or is gone.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from weft._base.capture import active_capture
from weft._base.site import warn_user
from weft._lazy.flushing import host_array
from weft._lazy.value import Value
from weft._tensor.base import TensorBase

Array = np.ndarray[Any, Any]

_lock = threading.RLock()  # reentrant, as garbage may be collected anywhere
# no cell: locks on the memory of arrays, which captures do not write
_locks: dict[int, _Lock] = {}  # by the identity of the array


class _Lock:
    """An array that NumPy may not write to as long as it is locked at least once.

    memory  what a tensor that shows all of it has; None where tensors show parts only
    """

    __slots__ = ("array", "count", "memory")

    def __init__(self, array: Array) -> None:
        self.array = weakref.ref(array)
        self.count = 0
        self.memory: weakref.ref[NumPyMemory] | None = None


class NumPyMemory:
    """The memory of an array, of which the storage of `owner` is a copy. The array may be gone before the tensor."""

    def __init__(self, array: Array, owner: TensorBase) -> None:
        root = array.base if isinstance(array.base, np.ndarray) and array.base.flags.forc else array
        self._array, self._root = weakref.ref(array), weakref.ref(root)
        offset = 0 if root is array else array.ctypes.data - root.ctypes.data
        self._place = (array.shape, array.dtype, offset, array.strides)
        self.owner = weakref.ref(owner)
        self._value = None if array.base is None else owner._value  # what is compared with the array, if it may differ
        with _lock:
            if root is not array:
                _acquire(root)
            _acquire(array).memory = weakref.ref(self)

    def write(self, value: Value) -> None:
        """Copy the new elements of the storage to the array, if anybody could see them there."""
        active_capture().needs_value("to write to the memory of a NumPy array")
        array, root = self._array(), self._root()
        if root is None:
            return
        elements = host_array(value)
        self._compare()
        self._value = None if self._value is None else value
        with _lock:
            root.flags.writeable = True
            try:
                self._part_of(root, array)[...] = elements
            finally:
                for one in _both(root, array):
                    one.flags.writeable = False

    def _part_of(self, root: Array, array: Array | None) -> Array:
        """The array, which may be gone, to be written to if the root may be."""
        if array is None:
            shape, dtype, offset, strides = self._place
            return np.ndarray(shape, dtype, root.reshape(-1, order="A"), offset, strides)
        array.flags.writeable = root.flags.writeable
        return array

    def _compare(self) -> None:
        """Warn if the array was written to by another view of its memory."""
        root = self._root()
        if self._value is None or root is None:
            return
        if self._part_of(root, self._array()).tobytes() != host_array(self._value).tobytes():
            warn_user(
                "a NumPy array was written to by another view of its memory while a tensor showed it: the tensor does "
                "not have these elements. Write to the tensor, or call torch.from_numpy after the write"
            )

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        try:
            self._compare()
        finally:
            with _lock:
                for one in _both(self._root(), self._array()):
                    _release(one)


def _both(root: Array | None, array: Array | None) -> list[Array]:
    """The arrays that are there, each once, the root first: its parts cannot be made writeable before it."""
    return [one for one in (root, None if array is root else array) if one is not None]


def owner_over(array: Array) -> TensorBase | None:
    """The tensor that shows this array already, if there is one."""
    lock = _find(array)
    memory = None if lock is None or lock.memory is None else lock.memory()
    return None if memory is None else memory.owner()


def is_writeable(array: Array) -> bool:
    """Whether the user may write to an array, but for the locks of this module."""
    if array.flags.writeable:
        return True
    return any(isinstance(one, np.ndarray) and _find(one) is not None for one in (array, array.base))


def _find(array: Array) -> _Lock | None:
    lock = _locks.get(id(array))
    return lock if lock is not None and lock.array() is array else None


def _acquire(array: Array) -> _Lock:
    lock = _find(array)
    if lock is None:
        lock = _locks[id(array)] = _Lock(array)
    lock.count += 1
    array.flags.writeable = False
    return lock


def _release(array: Array) -> None:
    lock = _find(array)
    if lock is None:
        return
    lock.count -= 1
    if not lock.count:
        del _locks[id(array)]
        with suppress(ValueError):  # a part of an array that is locked itself
            array.flags.writeable = True
