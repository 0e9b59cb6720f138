"""Long buffers that travel in chunks, over several connections where there are some, and assembled where they arrive.

A frame tells of the buffers that it has, and is handed on when they are complete. What is short goes in between: a
connection sends a chunk when it has nothing else to send.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from weft._comm.pipe import Bytes, Pipe
from weft.errors import DistNetworkError

Array = np.ndarray[Any, Any]

_SIZE = 512 << 10  # bytes of a chunk
_MOST = 1 << 42  # bytes of a buffer
_PAIR = struct.Struct("<QQ")  # a buffer's number and its bytes; where in it a chunk begins, and its bytes


class Parcel:
    """A frame of a pipe, and how many of its buffers are not complete."""

    __slots__ = ("body", "buffers", "kind", "missing", "number", "pipe")

    def __init__(self, pipe: Pipe, kind: int, number: int, body: Bytes) -> None:
        self.pipe, self.kind, self.number, self.body = pipe, kind, number, body
        self.buffers: list[Any] = []
        self.missing = 0


class _Arrival:
    """A buffer of which some has come, or was told of."""

    __slots__ = ("data", "left", "parcel")

    def __init__(self, data: Array) -> None:
        self.data, self.left = data, len(data)
        self.parcel: Parcel | None = None


class Chunks:
    """What is on its way to this process; `room(size)` gives memory for a buffer of so many bytes."""

    def __init__(self, room: Callable[[int], Array]) -> None:
        self._room = room
        self._numbers = count()
        self._lock = threading.Lock()
        self._arrivals: dict[Pipe, dict[int, _Arrival]] = {}

    def put(self, pipe: Pipe, kind: int, buffer: memoryview) -> bytes:
        """Put a buffer down to be sent, in frames of a kind; what the receiver needs to find it."""
        number, size = next(self._numbers), len(buffer)
        lanes = pipe.lanes or (pipe,)
        for turn, at in enumerate(range(0, size, _SIZE)):
            place = _PAIR.pack(at, size)
            lanes[turn % len(lanes)].put(kind, number, place, (buffer[at : at + _SIZE],), low_priority=True)
        return _PAIR.pack(number, size)

    def claim(self, parcel: Parcel, told: list[bytes], short: Iterator[Any]) -> Parcel | None:
        """Find the buffers that a frame tells of, between its `short` ones; the frame, if none of it is missing."""
        if any(len(one) not in (0, _PAIR.size) for one in told):
            raise DistNetworkError("it sent a malformed frame")
        with self._lock:
            for one in told:
                parcel.buffers.append(self._claimed(parcel, *_PAIR.unpack(one)) if one else next(short))
            return None if parcel.missing else parcel

    def _claimed(self, parcel: Parcel, number: int, size: int) -> Array:
        found = self._arrival(parcel.pipe, number, size)
        if found.parcel is not None:
            raise DistNetworkError("it sent two frames with the same buffer")
        if found.left:
            found.parcel = parcel
            parcel.missing += 1
        else:
            del self._arrivals[parcel.pipe][number]
        return found.data

    def take(self, pipe: Pipe, number: int, place: Bytes, buffers: list[memoryview]) -> Parcel | None:
        """A chunk has come, for a buffer of a frame of `pipe`; returns the frame if nothing of it is missing now."""
        if len(place) != _PAIR.size or len(buffers) != 1:
            raise DistNetworkError("it sent a malformed chunk")
        (at, size), chunk = _PAIR.unpack(place), buffers[0]
        if pipe.why is not None:
            return None
        with self._lock:
            found = self._arrival(pipe, number, size)
        if not chunk or at + len(chunk) > size:
            raise DistNetworkError("it sent a chunk that lies outside of its buffer")
        found.data[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        with self._lock:
            found.left -= len(chunk)
            if found.left < 0:
                raise DistNetworkError("it sent a chunk twice")
            parcel = found.parcel
            if found.left or parcel is None:
                return None
            self._arrivals.get(pipe, {}).pop(number, None)
            parcel.missing -= 1
            return None if parcel.missing else parcel

    def forget(self, pipe: Pipe) -> None:
        """A peer is lost, and what was on its way from there."""
        with self._lock:
            self._arrivals.pop(pipe, None)

    def _arrival(self, pipe: Pipe, number: int, size: int) -> _Arrival:
        arrivals = self._arrivals.setdefault(pipe, {})
        found = arrivals.get(number)
        if found is None:
            try:
                if not 0 < size <= _MOST:
                    raise MemoryError
                found = arrivals[number] = _Arrival(self._room(size))
            except MemoryError:
                raise DistNetworkError(f"it sent a buffer of {size} bytes, for which there is no memory") from None
        elif len(found.data) != size:
            raise DistNetworkError(f"it sent a buffer of {len(found.data)} bytes, and says that it has {size}")
        return found
