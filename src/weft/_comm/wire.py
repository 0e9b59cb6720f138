"""Frames on a stream of bytes, and fields in a frame. Nothing in them is code: no pickle."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from weft._comm.deadline import Deadline
from weft.errors import DistNetworkError

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16
_CLOSED = "the connection was closed by the other side"

MOST_BYTES = 1 << 28
"""The longest frame between peers that have proved the job's key."""


class Connection(Protocol):
    """A blocking socket, as far as single frames need it."""

    def settimeout(self, value: float | None, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def getpeername(self) -> Any: ...


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


def pack(*fields: bytes) -> bytes:
    """Fields as one payload, each with its length in front."""
    return b"".join([part for field in fields for part in (_LENGTH.pack(len(field)), field)])


def unpack(payload: bytes) -> list[bytes]:
    """The fields of a payload; `DistNetworkError` when their lengths do not fit into it."""
    fields, at, end = [], 0, len(payload)
    while at < end:
        if at + 4 > end:
            raise DistNetworkError("a frame ends in the middle of a field's length")
        (size,) = _LENGTH.unpack_from(payload, at)
        at += 4 + size
        if at > end:
            raise DistNetworkError(f"a field of {size} bytes does not fit into a frame of {end}")
        fields.append(payload[at - size : at])
    return fields


class Frames:
    """Puts the frames of a stream together from the pieces that arrive."""

    __slots__ = ("_pieces", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._pieces = bytearray()

    def feed(self, piece: bytes) -> None:
        """More of the stream."""
        self._pieces += piece

    def next(self) -> bytes | None:
        """The next whole frame, None while it is incomplete; `DistNetworkError` for one over the limit."""
        pieces = self._pieces
        if len(pieces) < 4:
            return None
        (size,) = _LENGTH.unpack_from(pieces)
        if size > self.most:
            raise DistNetworkError(f"a frame of {size} bytes is longer than the {self.most} allowed here")
        if len(pieces) < 4 + size:
            return None
        found = bytes(pieces[4 : 4 + size])
        del pieces[: 4 + size]
        return found


def receive(sock: Connection, frames: Frames, deadline: Deadline) -> bytes:
    """The next frame of a blocking socket.

    `TimeoutError` when the deadline passes first, `DistNetworkError` when the stream ends or holds no frames.
    """
    while (found := frames.next()) is None:
        sock.settimeout(_seconds(deadline))
        try:
            piece = sock.recv(_CHUNK)
        except OSError as error:
            if _is_deadline(error):
                raise
            raise _lost(error) from error
        if not piece:
            raise DistNetworkError(_CLOSED)
        frames.feed(piece)
    return found


def send(sock: Connection, payload: bytes, deadline: Deadline) -> None:
    """Send one frame over a blocking socket; errors as `receive`."""
    sock.settimeout(_seconds(deadline))
    try:
        sock.sendall(frame(payload))
    except OSError as error:
        if _is_deadline(error):
            raise
        raise _lost(error) from error


def _is_deadline(error: OSError) -> bool:
    """Whether a deadline has passed. That error has no number; the system's own ETIMEDOUT is a lost connection."""
    return isinstance(error, TimeoutError) and error.errno is None


def _lost(error: OSError) -> DistNetworkError:
    why = _CLOSED if isinstance(error, ConnectionError) else f"the network fails: {error.strerror}"
    return DistNetworkError(why)


def _seconds(deadline: Deadline) -> float | None:
    """For `settimeout`, where 0 would mean not to wait at all."""
    left = deadline.left()
    return None if left is None else max(left, 1e-3)
