"""Memory at fixed addresses, for libraries that read the elements of a tensor there."""

from __future__ import annotations

import weakref

import numpy as np

from weft._lazy.aligned import room
from weft._lazy.value import Value


class Memory:
    """Bytes on the host that belong to a storage: values move whenever a tensor is written, and this does not.

    They hold what `show` has written there last, at first zeros, which take no memory before.

    start  the address of the first byte
    """

    __slots__ = ("_bytes", "_source", "start")

    def __init__(self, size: int) -> None:
        self._bytes = room(size, np.zeros)
        self._source: weakref.ref[Value] | None = None
        self.start: int = self._bytes.ctypes.data

    def __len__(self) -> int:
        return len(self._bytes)

    def shows(self, value: Value) -> bool:
        """Whether the bytes are those of this value."""
        return self._source is not None and self._source() is value

    def show(self, value: Value, array: np.ndarray) -> None:
        """Write the elements of a value, which are in an array."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._bytes[: len(content)] = content
        self._source = weakref.ref(value)
