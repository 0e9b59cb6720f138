"""Frames on a stream of bytes, and fields in a frame. Nothing in them is code: no pickle."""

from __future__ import annotations

import hmac
import struct
from typing import Any, Protocol

from weft._comm.deadline import Deadline
from weft._comm.transport import tags
from weft._comm.transport.tags import Tags
from weft.errors import DistNetworkError

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16
CLOSED = "the connection was closed by the other side"

MOST_BYTES = 1 << 28
"""The longest frame between peers that have proved the job's key."""


class Connection(Protocol):
    """Those methods of a blocking socket that sending and receiving frames needs."""

    def settimeout(self, value: float | None, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def getpeername(self) -> Any: ...


def frame(payload: bytes, tagged: Tags | None = None) -> bytes:
    """The payload with its length in front, and its authentication tag behind, if there is one."""
    tag = b"" if tagged is None else tagged.next((payload,))
    return b"".join((_LENGTH.pack(len(payload)), payload, tag))


def pack(*fields: bytes) -> bytes:
    """Fields as one payload, each with its length in front."""
    return b"".join([part for field in fields for part in (_LENGTH.pack(len(field)), field)])


def unpack(payload: bytes) -> list[bytes]:
    """The fields of a payload; `DistNetworkError` when their lengths do not fit into it."""
    fields: list[bytes] = []
    at, end = 0, len(payload)
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
    """Assembles the frames of a stream from the pieces that arrive.

    most    bytes that a frame may have
    tagged  the expected tags of the frames, or None if they have none
    """

    __slots__ = ("_pieces", "most", "tagged")

    def __init__(self, most: int, tagged: Tags | None = None) -> None:
        self.most = most
        self.tagged = tagged
        self._pieces = bytearray()

    def feed(self, piece: bytes) -> None:
        """Add a piece of the stream."""
        self._pieces += piece

    @property
    def lacking(self) -> int:
        """How many bytes the next frame lacks, as far as its length is known; only for frames without tags."""
        pieces = self._pieces
        size = _LENGTH.unpack_from(pieces)[0] if len(pieces) >= _LENGTH.size else 0
        return _LENGTH.size + size - len(pieces)

    def next(self) -> bytes | None:
        """The next complete frame, None if there is none; `DistNetworkError` for one that is too long or forged."""
        pieces = self._pieces
        if len(pieces) < 4:
            return None
        (size,) = _LENGTH.unpack_from(pieces)
        # Before the bytes are collected: a false length must not cost memory.
        if size > self.most:
            raise DistNetworkError(f"a frame of {size} bytes is longer than the {self.most} allowed here")
        end = 4 + size
        stop = end if self.tagged is None else end + tags.SIZE
        if len(pieces) < stop:
            return None
        payload, tag = bytes(pieces[4:end]), pieces[end:stop]
        del pieces[:stop]
        if self.tagged is not None and not hmac.compare_digest(tag, self.tagged.next((payload,))):
            raise DistNetworkError("a frame is not what the peer has sent")
        return payload


def receive(sock: Connection, frames: Frames, deadline: Deadline) -> bytes:
    """The next frame of a blocking socket.

    `TimeoutError` if the deadline passes first; `DistNetworkError` if the stream ends or a frame is invalid.
    """
    while (payload := frames.next()) is None:
        frames.feed(_piece(sock, _CHUNK, deadline))
    return payload


def _piece(sock: Connection, most: int, deadline: Deadline) -> bytes:
    sock.settimeout(seconds_until(deadline))
    try:
        piece = sock.recv(most)
    except OSError as error:
        if _is_deadline(error):
            raise
        raise _lost(error) from error
    if not piece:
        raise DistNetworkError(CLOSED)
    return piece


def receive_alone(sock: Connection, most: int, deadline: Deadline) -> bytes:
    """The next frame, which has no tag, without reading any byte behind it. The errors are those of `receive`."""
    frames = Frames(most)
    while (payload := frames.next()) is None:
        frames.feed(_piece(sock, frames.lacking, deadline))
    return payload


def send(sock: Connection, payload: bytes, deadline: Deadline, tagged: Tags | None = None) -> None:
    """Send one frame over a blocking socket. The errors are those of `receive`."""
    sock.settimeout(seconds_until(deadline))
    try:
        sock.sendall(frame(payload, tagged))
    except OSError as error:
        if _is_deadline(error):
            raise
        raise _lost(error) from error


def _is_deadline(error: OSError) -> bool:
    """Whether the socket's timeout has passed. Its error has no errno; the system's ETIMEDOUT is a lost connection."""
    return isinstance(error, TimeoutError) and error.errno is None


def _lost(error: OSError) -> DistNetworkError:
    why = CLOSED if isinstance(error, ConnectionError) else f"the network fails: {error.strerror}"
    return DistNetworkError(why)


def seconds_until(deadline: Deadline) -> float | None:
    """The seconds left, for `settimeout`: at least 1 ms, as 0 would mean not to wait; None without a limit."""
    left = deadline.left()
    return None if left is None else max(left, 1e-3)
