"""Long buffers sent in chunks, over several connections if there are some, and assembled by the receiver.

A frame names its long buffers, and is delivered when all of them are complete. Chunks have low priority: a connection
sends one when it has nothing else to send, so short frames do not wait.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from weft._comm.transport.pipe import Bytes, CallPipe
from weft.errors import DistNetworkError

Array = np.ndarray[Any, Any]

_SIZE = 512 << 10  # bytes of a chunk
_MOST = 1 << 42  # bytes of a buffer
_PAIR = struct.Struct("<QQ")  # the number and the length of a buffer; or a chunk's offset in a buffer, and the length


class PendingFrame:
    """A frame of a pipe, and how many of its buffers are not complete."""

    __slots__ = ("body", "buffers", "kind", "missing", "number", "pipe")

    def __init__(self, pipe: CallPipe, kind: int, number: int, body: Bytes) -> None:
        self.pipe, self.kind, self.number, self.body = pipe, kind, number, body
        self.buffers: list[Any] = []
        self.missing = 0


class _PartialBuffer:
    """A buffer that is not complete: some of its chunks have arrived, or the frame that names it.

    left   bytes that are missing
    frame  the frame that names it, if that has arrived
    """

    __slots__ = ("data", "frame", "left")

    def __init__(self, data: Array) -> None:
        self.data, self.left = data, len(data)
        self.frame: PendingFrame | None = None


class Chunks:
    """The long buffers that this process sends and receives; `allocate(size)` gives memory for that many bytes."""

    def __init__(self, allocate: Callable[[int], Array]) -> None:
        self._allocate = allocate
        self._numbers = count()
        self._lock = threading.Lock()
        self._partial: dict[CallPipe, dict[int, _PartialBuffer]] = {}

    def put(self, pipe: CallPipe, kind: int, buffer: memoryview) -> bytes:
        """Queue a buffer to be sent in frames of a kind; returns the descriptor by which a frame names it."""
        number, size = next(self._numbers), len(buffer)
        lanes = pipe.lanes or (pipe,)
        for index, offset in enumerate(range(0, size, _SIZE)):
            position = _PAIR.pack(offset, size)
            lanes[index % len(lanes)].put(kind, number, position, (buffer[offset : offset + _SIZE],), low_priority=True)
        return _PAIR.pack(number, size)

    def claim(self, frame: PendingFrame, descriptors: list[bytes], short: Iterator[Any]) -> PendingFrame | None:
        """Attach buffers to a frame: those that `descriptors` name, and for an empty descriptor the next of `short`.

        Returns the frame if all its buffers are complete, else None. `DistNetworkError` for invalid descriptors.
        """
        if any(len(descriptor) not in (0, _PAIR.size) for descriptor in descriptors):
            raise DistNetworkError("it sent a malformed frame")
        with self._lock:
            for descriptor in descriptors:
                frame.buffers.append(self._claim(frame, *_PAIR.unpack(descriptor)) if descriptor else next(short))
            return None if frame.missing else frame

    def _claim(self, frame: PendingFrame, number: int, size: int) -> Array:
        arrival = self._partial_buffer(frame.pipe, number, size)
        if arrival.frame is not None:
            raise DistNetworkError("it sent two frames with the same buffer")
        if arrival.left:
            arrival.frame = frame
            frame.missing += 1
        else:
            del self._partial[frame.pipe][number]
        return arrival.data

    def take(self, pipe: CallPipe, number: int, position: Bytes, buffers: list[memoryview]) -> PendingFrame | None:
        """Store a chunk of a buffer that belongs to a frame of `pipe`; returns the frame if that completes it.

        `DistNetworkError` for an invalid chunk.
        """
        if len(position) != _PAIR.size or len(buffers) != 1:
            raise DistNetworkError("it sent a malformed chunk")
        (offset, size), chunk = _PAIR.unpack(position), buffers[0]
        if pipe.close_reason is not None:
            return None
        with self._lock:
            partial = self._partial_buffer(pipe, number, size)
        if not chunk or offset + len(chunk) > size:
            raise DistNetworkError("it sent a chunk that lies outside of its buffer")
        partial.data[offset : offset + len(chunk)] = np.frombuffer(chunk, np.uint8)
        with self._lock:
            partial.left -= len(chunk)
            if partial.left < 0:
                raise DistNetworkError("it sent a chunk twice")
            frame = partial.frame
            if partial.left or frame is None:
                return None
            self._partial.get(pipe, {}).pop(number, None)
            frame.missing -= 1
            return None if frame.missing else frame

    def forget(self, pipe: CallPipe) -> None:
        """Drop the incomplete buffers of a pipe that is lost."""
        with self._lock:
            self._partial.pop(pipe, None)

    def _partial_buffer(self, pipe: CallPipe, number: int, size: int) -> _PartialBuffer:
        arrivals = self._partial.setdefault(pipe, {})
        partial = arrivals.get(number)
        # Chunks travel by other connections than the frame that names them, so they may come first.
        if partial is None:
            try:
                if not 0 < size <= _MOST:
                    raise MemoryError
                partial = arrivals[number] = _PartialBuffer(self._allocate(size))
            except MemoryError:
                raise DistNetworkError(f"it sent a buffer of {size} bytes, for which there is no memory") from None
        elif len(partial.data) != size:
            raise DistNetworkError(f"it sent a buffer of {len(partial.data)} bytes, and says that it has {size}")
        return partial
