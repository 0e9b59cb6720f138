"""A stream of bytes between two ranks that share memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from weft._comm.shared_memory.layout import RegionLayout

Array = np.ndarray


class Words(Protocol):
    """Memory shared by two ranks, and the counters in it."""

    layout: RegionLayout
    bytes: Array

    def post(self, word: int, value: int) -> None:
        """Write a counter that announces what was written before."""
        ...

    def read(self, word: int) -> int:
        """Read a counter of another rank."""
        ...


class Ring:
    """One end of a ring buffer. Its counters only grow; their difference is the number of bytes in the ring."""

    def __init__(self, group: Words, source: int, target: int) -> None:
        layout = group.layout
        self._group = group
        self._data = group.bytes[layout.ring(source, target)]
        self._size = layout.ring_bytes
        self._most = layout.ring_bytes // 4  # per call, so that both ends can work at the same time
        self._written = layout.written(source, target)
        self._consumed = layout.consumed(source, target)
        self._count = 0  # bytes written or taken by this end

    def room(self) -> int:
        return self._size - self._count + self._group.read(self._consumed)

    def ready(self) -> int:
        return self._group.read(self._written) - self._count

    def write(self, data: Array) -> int:
        """Write as many bytes as fit; returns their number."""
        count = min(self.room(), len(data), self._most)
        for ring_part, part in self._parts(count):
            self._data[ring_part] = data[part]
        self._count += count
        # The counter last: the peer reads whatever it announces.
        self._group.post(self._written, self._count)
        return count

    def take(self, data: Array) -> int:
        """Read as many bytes as are there into `data`; returns their number."""
        count = min(self.ready(), len(data), self._most)
        for ring_part, part in self._parts(count):
            data[part] = self._data[ring_part]
        self._count += count
        self._group.post(self._consumed, self._count)
        return count

    def _parts(self, count: int) -> list[tuple[slice, slice]]:
        """The slices of the ring and of the data for the next bytes: one pair, or two if the ring wraps around."""
        at = self._count % self._size
        first = min(count, self._size - at)
        parts = [(slice(at, at + first), slice(0, first))]
        return parts if first == count else [*parts, (slice(0, count - first), slice(first, count))]
