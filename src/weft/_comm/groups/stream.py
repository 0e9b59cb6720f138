"""Protocols: streams of bytes between ranks, and the group that messages are sent in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from weft._comm.deadline import Deadline

Array = np.ndarray


class ByteSource(Protocol):
    """The end of a stream that bytes come out of."""

    def ready(self) -> int:
        """How many bytes are there, at least."""
        ...

    def take(self, data: Array) -> int:
        """Take out what is there and wanted; returns the number of bytes."""
        ...


class BufferedSource:
    """A source whose next bytes are in `_buffer`, which `ready` fills when it is empty."""

    _buffer: Array

    def ready(self) -> int:
        """How many bytes are there, at least."""
        raise NotImplementedError

    def take(self, data: Array) -> int:
        """Take out what is there and wanted; returns the number of bytes."""
        count = min(self.ready(), len(data))
        data[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        return count


class ByteSink(Protocol):
    """The end of a stream that bytes go into."""

    def write(self, data: Array) -> int:
        """Put in what fits; returns the number of bytes."""
        ...


class NoStream:
    """The stream from a rank to itself: nothing goes that way."""

    def ready(self) -> int:
        return 0

    def take(self, data: Array) -> int:
        del data
        return 0

    def write(self, data: Array) -> int:
        del data
        return 0


NO_STREAM = NoStream()


class PeerGroup(Protocol):
    """A group of ranks. While a rank waits it calls `progress`, which returns whether any message moved."""

    rank: int
    size: int
    ranks: tuple[int, ...]
    progress: Callable[[], bool]

    def outgoing(self, peer: int) -> ByteSink:
        """The stream to a peer."""
        ...

    def incoming(self, peer: int) -> ByteSource:
        """The stream from a peer."""
        ...

    def check(self, what: object) -> None:
        """Raise if the group has failed; `what` names the operation that is to begin."""
        ...

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing` names no rank any more; `DistBackendError` if that cannot happen."""
        ...


class Streams(Protocol):
    """The streams of one rank to and from all others."""

    def outgoing(self, peer: int) -> ByteSink:
        """The stream to a peer."""
        ...

    def incoming(self, peer: int) -> ByteSource:
        """The stream from a peer."""
        ...

    def ended(self) -> dict[int, str]:
        """The peers that have ended, each with the reason."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait until bytes may have arrived, or for that long."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
