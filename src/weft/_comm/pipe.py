"""Frames to and from one peer, over a connected socket that has proved the job's key.

A frame has a kind, a number, a body, and buffers: memory that travels beside the body. A tag over all of it is checked
before it is handed on, so what the peer has not sent, or not so, breaks its pipe and nothing else. A pipe may have
lanes, further ones to the same peer, for what is long.

Sending never waits: what the system does not take is kept, and sent by the hub when there is room. Reading is for one
thread at a time, which has the reader lock: a caller that waits for its answer, or a thread of the hub.
"""

from __future__ import annotations

import hmac
import mmap
import os
import select
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from weft._comm import tags
from weft._comm.loans import Borrower
from weft._comm.proof import Session
from weft._comm.reader import ReaderLock
from weft._comm.spin import spin
from weft.errors import DistNetworkError, ValueRangeError

Bytes = bytes | bytearray | memoryview
Frame = tuple[Bytes, ...]
"""Head, body, and buffers."""

MOST_BYTES = 1 << 30
"""The longest frame."""

_HEAD = struct.Struct(f"<{tags.SIZE}sIQHH")  # tag of the rest, bytes that follow, number, kind, number of buffers
_REST = struct.Struct("<IQHH")
_SHORT = 1 << 10  # bytes up to which a body is copied, so that it does not keep what came with it
_LONG = 1 << 16  # bytes read at a time; a buffer of more is not copied to what goes before it
_BELIEVED = 1 << 22  # bytes of a frame for which there is memory before they come
_MOST_PIECES = 64  # of one system call
_PATIENCE = 50  # milliseconds after which a read that waits returns
_CLOSED = "it has closed the connection"
_SENT = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Cipher(Protocol):
    """What hides the bytes of a connection. Calls of `seal` and of `open` are each made one at a time."""

    def seal(self, data: Bytes) -> bytes:
        """The bytes that travel."""
        ...

    def open(self, data: bytes) -> bytes:
        """What travelling bytes say, as far as it is complete; `DistNetworkError` where they are forged."""
        ...


class Owner(Protocol):
    """Who deals with what comes through pipes. Neither method may raise."""

    def received(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """A frame has come."""
        ...

    def lost(self, pipe: Pipe) -> None:
        """Nothing will come through this pipe any more; `pipe.why` tells the cause."""
        ...


class Pipe:
    """One connection. `peer` is who is at the other end, for messages; owners may set it when they know better."""

    def __init__(
        self, sock: socket.socket, owner: Owner, peer: str, session: Session, cipher: Cipher | None = None,
        main: Pipe | None = None,
    ) -> None:  # fmt: skip
        self._sock = sock
        sock.settimeout(None)
        self._main = main
        self.lanes: tuple[Pipe, ...] = ()
        self.peer = peer
        self.why: str | None = None
        self.calls: dict[int, Any] = {}
        """What waits for an answer, by number."""
        self.borrower = Borrower()
        self.near = sock.family == socket.AF_UNIX
        """Whether the peer is on this host, where memory can be lent."""
        self.reader = ReaderLock()
        """Held by who reads."""
        self.pushed = 0.0
        """When something was last sent by itself, for those who put several things together."""
        self.bytes_in = self.bytes_out = 0
        """How much has travelled, lent memory included."""
        self._arrivals = select.poll()
        self._arrivals.register(sock, select.POLLIN)
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self.free = weakref.finalize(self, _free, sock, self._wakeup)
        """Gives the socket back: called when no thread reads it any more, at the latest with the pipe's end."""
        self._arrivals.register(self._wakeup, select.POLLIN)
        self._owner = owner
        self._tags = session
        self._cipher = cipher
        self._lock = threading.Lock()  # of what is to be sent
        self._unsent: deque[Bytes] = deque()
        self._low_priority: deque[Frame] = deque()  # those that wait until nothing else is unsent
        self._left = b""  # the beginning of a frame
        self._long: memoryview | None = None  # a frame that takes several reads, of which `_filled` bytes are there
        self._filled = 0

    @property
    def main(self) -> Pipe:
        """The pipe that this is a lane of, or this one."""
        return self._main or self

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def backlog(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent or self._low_priority)

    # --- sending ---

    def put(
        self, kind: int, number: int, body: Bytes, buffers: Sequence[Bytes] = (), *, low_priority: bool = False
    ) -> None:
        """Add a frame to what is to be sent by `flush`. Buffers must stay as they are until then.

        One of `low_priority` lets others pass. `ValueError` for a frame that is longer than `MOST_BYTES`.
        """
        frame = _frame(kind, number, body, buffers)
        with self._lock:
            if low_priority:
                self._low_priority.append(frame)
            else:
                self._unsent.extend(self._sealed(frame))

    def _sealed(self, frame: Frame) -> Iterable[Bytes]:
        """The next frame in as few pieces as can be without copying long buffers."""
        tag, size = self._tags.outgoing.next(frame), sum(map(len, frame))
        pieces = [b"".join((tag, *frame))] if size <= _LONG else [b"".join((tag, *frame[:2])), *filter(len, frame[2:])]
        return pieces if self._cipher is None else map(self._cipher.seal, pieces)

    def flush(self) -> None:
        """Send as much as the system takes now. That the peer has gone is found by reading."""
        with self._lock:
            unsent = self._unsent
            while self.backlog and self.why is None:
                if not unsent:
                    unsent.extend(self._sealed(self._low_priority.popleft()))
                try:
                    if len(unsent) == 1:
                        sent = self._sock.send(unsent[0], _SENT)
                    else:
                        sent = self._sock.sendmsg(list(islice(unsent, _MOST_PIECES)), (), _SENT)
                except BlockingIOError:
                    return
                except OSError:
                    unsent.clear()  # what the peer has said before its end is still to be read
                    self._low_priority.clear()
                    return
                self.main.bytes_out += sent
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = memoryview(unsent[0])[sent:]

    # --- reading; for the thread that has the reader lock ---

    def read(self, *, wait: bool) -> bool:
        """Read once and hand on the frames that are complete; whether anything came.

        With `wait` this blocks for a twentieth of a second at most, and less where it is woken.
        """
        if self.why is not None:
            return False
        if wait and not spin(lambda: self._arrivals.poll(0)):
            self._arrivals.poll(_PATIENCE)
        try:
            if self._woken:
                self._woken = False
                os.eventfd_read(self._wakeup)
            data = self._receive()
            if data is not None:
                self._hand_on(data)
        except BlockingIOError:
            return False
        except DistNetworkError as error:
            self.close(str(error))
        except OSError as error:
            self.close(_CLOSED if isinstance(error, ConnectionError) else f"the network fails: {error.strerror}")
        return True

    def wake(self) -> None:
        """Have who waits in `read` look again at what it waits for."""
        if self.reader.taken and not self._woken and self.free.alive:
            with suppress(OSError):  # it was closed
                os.eventfd_write(self._wakeup, 1)
            self._woken = True

    def _receive(self) -> bytes | None:
        """Some bytes to hand on, or None where more of a long frame is to come."""
        long, cipher = self._long, self._cipher
        if long is None or cipher is not None:
            data = self._sock.recv(_LONG, socket.MSG_DONTWAIT)
            if not data:
                raise DistNetworkError(_CLOSED)
            self.main.bytes_in += len(data)
            if cipher is not None:
                data = cipher.open(data)
            if long is None:
                return self._left + data if self._left else data
            count = min(len(data), len(long) - self._filled)
            long[self._filled : self._filled + count] = data[:count]
            left = data[count:]
        else:
            count, left = self._sock.recv_into(long[self._filled :], 0, socket.MSG_DONTWAIT), b""
            if not count:
                raise DistNetworkError(_CLOSED)
            self.main.bytes_in += count
        self._filled += count
        if self._filled < len(long):
            return None
        self._long = None
        self._take(long, 0, len(long))
        return left

    def _hand_on(self, data: bytes) -> None:
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _HEAD.size:
            size = int.from_bytes(view[at + tags.SIZE : at + tags.SIZE + 4], "little")
            stop = at + _HEAD.size + size
            if stop > end:
                if size > MOST_BYTES:
                    raise DistNetworkError(f"it sent a frame of {size} bytes; {MOST_BYTES} are allowed")
                if size > _LONG:
                    self._long, self._filled = _room(_HEAD.size + size), end - at
                    self._long[: self._filled] = view[at:]
                    at = end
                break
            self._take(view, at, stop)
            at = stop
        self._left = data[at:]

    def _take(self, view: memoryview, at: int, stop: int) -> None:
        """Check the frame between two places, and hand it on."""
        tag, _, number, kind, count = _HEAD.unpack_from(view, at)
        start = at + _HEAD.size
        if not count:
            end, buffers = stop, []
        else:
            end, buffers = _buffers(view, start, stop, count)
        start += 8 * count
        body = view[start:end]
        if not hmac.compare_digest(tag, self._tags.incoming.next((view[at + tags.SIZE : start], body, *buffers))):
            raise DistNetworkError("it sent a malformed frame")
        self._owner.received(self, kind, number, body if len(body) > _SHORT else bytes(body), buffers)

    def close(self, why: str) -> None:
        """Close the connection and tell the owner, once."""
        with self._lock:
            if self.why is not None:
                return
            self.why = why
            self._unsent.clear()
            self._low_priority.clear()
        with suppress(OSError):  # the peer was faster
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes who reads
        self._owner.lost(self)


def _free(sock: socket.socket, wakeup: int) -> None:
    sock.close()
    os.close(wakeup)


def _frame(kind: int, number: int, body: Bytes, buffers: Sequence[Bytes]) -> Frame:
    sizes = [len(buffer) for buffer in buffers]
    size = 8 * len(sizes) + len(body) + sum(sizes)
    if size > MOST_BYTES:
        raise ValueRangeError(f"a message of {size} bytes is longer than the {MOST_BYTES} that one may have")
    head = _REST.pack(size, number, kind, len(sizes)) + (struct.pack(f"<{len(sizes)}Q", *sizes) if sizes else b"")
    return head, body, *buffers


def _room(size: int) -> memoryview:
    """Memory for a frame. A long one takes up pages as it comes, so that what a frame says of its length costs nothing.

    Those pages lie outside of the heap, which keeps what was touched once.
    """
    if size <= _BELIEVED:
        return memoryview(bytearray(size))
    try:
        return memoryview(mmap.mmap(-1, size))
    except OSError:
        raise DistNetworkError(f"it sent a frame of {size} bytes, for which there is no memory") from None


def _buffers(view: memoryview, start: int, stop: int, count: int) -> tuple[int, list[memoryview]]:
    """Where the body of a frame ends, and the buffers behind it."""
    if start + 8 * count > stop:
        raise DistNetworkError("it sent a malformed frame")
    sizes = struct.unpack_from(f"<{count}Q", view, start)
    end = at = stop - sum(sizes)
    if end < start + 8 * count:
        raise DistNetworkError("it sent a malformed frame")
    buffers = []
    for size in sizes:
        buffers.append(view[at : at + size])
        at += size
    return end, buffers
