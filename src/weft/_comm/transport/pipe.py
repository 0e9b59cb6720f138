"""Frames to and from one peer, over a connected socket that has proved the job's key.

A frame has a kind, a number, a body, and buffers, which are sent after the body without being copied. Its
authentication tag is checked before it is delivered, so a forged or damaged frame only closes its pipe. A pipe may have
lanes: further connections to the same peer, for long buffers.

Sending never blocks: bytes that the system does not take are queued, and sent by the reactor when there is room. One
thread reads at a time, the one with the reader lock: a caller that waits for its answer, or a thread of the reactor.
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

from weft._comm.shared_memory.loans import Borrower
from weft._comm.spin import spin
from weft._comm.transport import tags
from weft._comm.transport.authentication import Session
from weft._comm.transport.reader_lock import ReaderLock
from weft.errors import DistNetworkError, ValueRangeError

Bytes = bytes | bytearray | memoryview
Frame = tuple[Bytes, ...]
"""Head, body, and buffers."""

MOST_BYTES = 1 << 30
"""The longest frame."""

_HEAD = struct.Struct(f"<{tags.SIZE}sIQHH")  # tag of the rest, bytes that follow, number, kind, number of buffers
_REST = struct.Struct("<IQHH")
_SHORT = 1 << 10  # bytes up to which a body is copied, as a view would keep the frames read with it in memory
_LONG = 1 << 16  # bytes read at a time; the buffers of a longer frame are sent without copying them
_PREALLOCATED = 1 << 22  # bytes up to which the memory of a frame is allocated before the frame is complete
_MOST_PIECES = 64  # that one system call sends
_READ_TIMEOUT = 50  # milliseconds after which a read that waits returns
_CLOSED = "it has closed the connection"
_SENT = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Cipher(Protocol):
    """The encryption of a connection. `seal` is called by one thread at a time, and so is `open`."""

    def seal(self, data: Bytes) -> bytes:
        """The encrypted bytes."""
        ...

    def open(self, data: bytes) -> bytes:
        """Take received bytes, and return what can be decrypted so far; `DistNetworkError` if they are forged."""
        ...


class FrameHandler(Protocol):
    """Receives what comes through pipes. Neither method may raise."""

    def received(self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """A frame has arrived."""
        ...

    def lost(self, pipe: CallPipe) -> None:
        """The pipe is closed; `pipe.close_reason` says why."""
        ...


class CallPipe:
    """One connection. `peer` is the name of the other end, for messages; `main` the pipe that this one is a lane of."""

    def __init__(
        self,
        sock: socket.socket,
        handler: FrameHandler,
        peer: str,
        session: Session,
        cipher: Cipher | None = None,
        main: CallPipe | None = None,
    ) -> None:
        self._sock = sock
        sock.settimeout(None)
        self._main = main
        self.lanes: tuple[CallPipe, ...] = ()
        self.peer = peer
        self.close_reason: str | None = None
        self.calls: dict[int, Any] = {}
        """The calls that wait for an answer, by number."""
        self.borrower = Borrower()
        self.same_host = sock.family == socket.AF_UNIX
        """Whether the peer is on this host, so that memory can be lent."""
        self.reader = ReaderLock()
        """Held by the thread that reads."""
        self.pushed = 0.0
        """When a call was last sent at once (`time.perf_counter`); calls that follow closely are sent together."""
        self.bytes_in = self.bytes_out = 0
        """Bytes received and sent, lent memory included."""
        self._arrivals = select.poll()
        self._arrivals.register(sock, select.POLLIN)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self.free = weakref.finalize(self, _free, sock, self._wake_fd)
        """Closes the socket. It is called once no thread reads it, at the latest when the pipe is garbage-collected."""
        self._arrivals.register(self._wake_fd, select.POLLIN)
        self._handler = handler
        self._tags = session
        self._cipher = cipher
        self._lock = threading.Lock()  # guards what is to be sent
        self._unsent: deque[Bytes] = deque()
        self._low_priority: deque[Frame] = deque()  # sent when nothing else is unsent
        self._remainder = b""  # the beginning of a frame, as far as it has arrived
        self._long_frame: memoryview | None = None  # a frame that takes several reads
        self._filled = 0  # bytes of it that have arrived

    @property
    def main(self) -> CallPipe:
        """The pipe that this one is a lane of; itself if it is no lane."""
        return self._main or self

    def fileno(self) -> int:
        """The file descriptor of the socket; -1 once that is closed."""
        return self._sock.fileno()

    @property
    def backlog(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent or self._low_priority)

    # --- sending ---

    def put(
        self, kind: int, number: int, body: Bytes, buffers: Sequence[Bytes] = (), *, low_priority: bool = False
    ) -> None:
        """Queue a frame for `flush`. Buffers must not change until they are sent.

        Frames of `low_priority` are sent after all others. `ValueError` for a frame longer than `MOST_BYTES`.
        """
        frame = _frame(kind, number, body, buffers)
        with self._lock:
            if low_priority:
                self._low_priority.append(frame)
            else:
                self._unsent.extend(self._sealed(frame))

    def _sealed(self, frame: Frame) -> Iterable[Bytes]:
        """The bytes of the next frame, tagged and encrypted, in few pieces and without copying long buffers."""
        # The tag has the frame's number, so it is made when the frame's turn has come: frames of low priority may be
        # overtaken until then.
        tag, size = self._tags.outgoing.next(frame), sum(map(len, frame))
        pieces = [b"".join((tag, *frame))] if size <= _LONG else [b"".join((tag, *frame[:2])), *filter(len, frame[2:])]
        return pieces if self._cipher is None else map(self._cipher.seal, pieces)

    def flush(self) -> None:
        """Send as much as the system takes now. A lost peer is noticed by reading, not here."""
        with self._lock:
            unsent = self._unsent
            while self.backlog and self.close_reason is None:
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
                    unsent.clear()  # the pipe stays open to read the frames that the peer sent before it ended
                    self._low_priority.clear()
                    return
                self.main.bytes_out += sent
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = memoryview(unsent[0])[sent:]

    # --- reading; for the thread that has the reader lock ---

    def read(self, *, wait: bool) -> bool:
        """Read once and deliver the frames that are complete; returns whether anything arrived.

        With `wait` this blocks for up to 50 ms, or until `wake`.
        """
        if self.close_reason is not None:
            return False
        if wait and not spin(lambda: self._arrivals.poll(0)):
            self._arrivals.poll(_READ_TIMEOUT)
        try:
            if self._woken:
                self._woken = False
                os.eventfd_read(self._wake_fd)
            data = self._receive()
            if data is not None:
                self._dispatch(data)
            return True
        except BlockingIOError:
            return False
        except DistNetworkError as error:
            why = str(error)
        except OSError as error:
            why = _CLOSED if isinstance(error, ConnectionError) else f"the network fails: {error.strerror}"
        self.close(why)  # not above, where the errors of calls would get this one as their context, with all its frames
        return True

    def wake(self) -> None:
        """Make a thread that waits in `read` return."""
        if self.reader.held and not self._woken and self.free.alive:
            with suppress(OSError):  # it was closed
                os.eventfd_write(self._wake_fd, 1)
            self._woken = True

    def _receive(self) -> bytes | None:
        """Some bytes to parse, or None while a long frame is incomplete."""
        long, cipher = self._long_frame, self._cipher
        if long is None or cipher is not None:
            data = self._sock.recv(_LONG, socket.MSG_DONTWAIT)
            if not data:
                raise DistNetworkError(_CLOSED)
            self.main.bytes_in += len(data)
            if cipher is not None:
                data = cipher.open(data)
            if long is None:
                return self._remainder + data if self._remainder else data
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
        self._long_frame = None
        self._verify(long, 0, len(long))
        return left

    def _dispatch(self, data: bytes) -> None:
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _HEAD.size:
            size = int.from_bytes(view[at + tags.SIZE : at + tags.SIZE + 4], "little")
            stop = at + _HEAD.size + size
            if stop > end:
                if size > MOST_BYTES:
                    raise DistNetworkError(f"it sent a frame of {size} bytes; {MOST_BYTES} are allowed")
                # Read straight into its memory from here on, and not piece by piece through `_remainder`.
                if size > _LONG:
                    self._long_frame, self._filled = _allocate(_HEAD.size + size), end - at
                    self._long_frame[: self._filled] = view[at:]
                    at = end
                break
            self._verify(view, at, stop)
            at = stop
        self._remainder = data[at:]

    def _verify(self, view: memoryview, at: int, stop: int) -> None:
        """Check the tag of the frame between two offsets, and deliver it."""
        tag, _, number, kind, count = _HEAD.unpack_from(view, at)
        start = at + _HEAD.size
        if not count:
            end, buffers = stop, []
        else:
            end, buffers = _buffers(view, start, stop, count)
        start += 8 * count
        body = view[start:end]
        # In a time that does not depend on how many bytes agree, which would tell a forger of the tag.
        if not hmac.compare_digest(tag, self._tags.incoming.next((view[at + tags.SIZE : start], body, *buffers))):
            raise DistNetworkError("it sent a malformed frame")
        self._handler.received(self, kind, number, body if len(body) > _SHORT else bytes(body), buffers)

    def close(self, why: str) -> None:
        """Close the connection and tell the handler, once."""
        with self._lock:
            if self.close_reason is not None:
                return
            self.close_reason = why
            self._unsent.clear()
            self._low_priority.clear()
        # Shut down and not closed: another thread may be within a system call on the descriptor, whose number could
        # belong to something else then.
        with suppress(OSError):  # the peer has closed it already
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the reader
        self._handler.lost(self)


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


def _allocate(size: int) -> memoryview:
    """Memory for a frame; `DistNetworkError` if there is none.

    Pages of a long frame are only allocated as it arrives, so a false length costs nothing. They are mapped outside of
    the heap, which would keep them when the frame is freed.
    """
    if size <= _PREALLOCATED:
        return memoryview(bytearray(size))
    try:
        return memoryview(mmap.mmap(-1, size))
    except OSError:
        raise DistNetworkError(f"it sent a frame of {size} bytes, for which there is no memory") from None


def _buffers(view: memoryview, start: int, stop: int, count: int) -> tuple[int, list[memoryview]]:
    """The offset at which the body of a frame ends, and the buffers behind it."""
    if start + 8 * count > stop:
        raise DistNetworkError("it sent a malformed frame")
    sizes = struct.unpack_from(f"<{count}Q", view, start)
    end = at = stop - sum(sizes)
    if end < start + 8 * count:
        raise DistNetworkError("it sent a malformed frame")
    buffers: list[memoryview] = []
    for size in sizes:
        buffers.append(view[at : at + size])
        at += size
    return end, buffers
