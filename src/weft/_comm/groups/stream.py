"""Protocols of byte streams between ranks, and of the groups in which messages are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from weft._comm.deadline import Deadline

Array = np.ndarray


class ByteSource(Protocol):
    """The reading end of a stream."""

    def ready(self) -> int:
        """A lower bound of the number of bytes that can be taken."""
        ...

    def take(self, data: Array) -> int:
        """Read as many bytes as are there into `data`; returns their number."""
        ...


class BufferedSource:
    """A source whose next bytes are in `_buffer`, which `ready` fills when it is empty."""

    _buffer: Array

    def ready(self) -> int:
        """A lower bound of the number of bytes that can be taken."""
        raise NotImplementedError

    def take(self, data: Array) -> int:
        """Read as many bytes as are there into `data`; returns their number."""
        count = min(self.ready(), len(data))
        data[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        return count


class ByteSink(Protocol):
    """The writing end of a stream."""

    def write(self, data: Array) -> int:
        """Write as many bytes as fit; returns their number."""
        ...


class NoStream:
    """The stream from a rank to itself, which is never used."""

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
        """Raise if the group has failed; `what` names the operation that is about to begin."""
        ...

    def wait(self, missing: Callable[[], Sequence[int]], what: object, deadline: Deadline) -> None:
        """Return once `missing()` is empty; `DistBackendError` if that cannot happen."""
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
        """Wait until bytes may have arrived, or for this long."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
