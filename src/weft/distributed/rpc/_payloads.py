"""How long buffers are sent: lent in shared memory to a peer on this host, else in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft._comm.shared_memory.loans import Lender
from weft._comm.transport import wire
from weft._comm.transport.chunks import Chunks, PendingFrame
from weft._comm.transport.pipe import Bytes, CallPipe
from weft._comm.transport.reactor import Reactor
from weft._lazy.aligned import room
from weft.distributed.rpc._protocol import Frame, Mark
from weft.errors import DistNetworkError

LONG_FLAGS = Mark.LENT | Mark.CUT
"""Frames with one of these bits, and chunks, are passed to `Payloads.receive`."""

_MIN_LONG = 1 << 16  # bytes from which on a buffer is lent or cut into chunks


class Payloads:
    """The long buffers that a worker lends, borrows, sends and receives. `add_lanes(pipe)` opens lanes."""

    def __init__(self, reactor: Reactor, add_lanes: Callable[[CallPipe], None]) -> None:
        self._reactor = reactor
        self._add_lanes = add_lanes
        self._lender = Lender()
        self._chunks = Chunks(room)

    def put(self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: Sequence[memoryview]) -> None:
        """Queue a frame, after the returns of loans."""
        self._queue_returns(pipe)
        if not any(len(buffer) >= _MIN_LONG for buffer in buffers):
            pipe.put(kind, number, body, buffers)
            return
        # Only processes of one host share memory. Between hosts chunks let short frames pass a long buffer, which would
        # otherwise hold them up.
        if pipe.same_host:
            flag, carry = Mark.LENT, partial(self._lender.lend, pipe)
        else:
            self._add_lanes(pipe)
            flag, carry = Mark.CUT, partial(self._chunks.put, pipe, Frame.CHUNK)
        handles = [carry(buffer) if len(buffer) >= _MIN_LONG else b"" for buffer in buffers]
        short = [buffer for handle, buffer in zip(handles, buffers, strict=True) if not handle]
        pipe.put(kind | flag, number, body, [wire.pack(*handles), *short])
        if not pipe.same_host:
            for lane in pipe.lanes:
                self._reactor.flush(lane)
            return
        pipe.bytes_out += sum(len(buffer) for handle, buffer in zip(handles, buffers, strict=True) if handle)
        # `forget` may have run before this loan was made; nobody would return it.
        if pipe.close_reason is not None:  # the connection was lost meanwhile
            self._lender.forget(pipe)

    def receive(
        self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]
    ) -> PendingFrame | None:
        """Handle a frame with long buffers, or a chunk; returns a frame that is complete now, else None.

        `DistNetworkError` for malformed loans or chunks.
        """
        if kind == Frame.CHUNK:
            self._add_lanes(pipe)
            return self._chunks.take(pipe.main, number, body, buffers)
        handles, short = wire.unpack(bytes(buffers[0])) if buffers else [], iter(buffers[1:])
        # A peer that knows the key may still send nonsense; a frame whose buffers do not fit together must end its
        # connection and nothing else.
        if kind & LONG_FLAGS != (Mark.LENT if pipe.same_host else Mark.CUT) or handles.count(b"") != len(buffers) - 1:
            raise DistNetworkError("it sent a malformed frame")
        frame = PendingFrame(pipe, kind & ~LONG_FLAGS, number, body)
        if not pipe.same_host:
            return self._chunks.claim(frame, handles, short)
        give_back = partial(self._give_back, pipe)
        frame.buffers = [pipe.borrower.borrow(handle, give_back) if handle else next(short) for handle in handles]
        pipe.bytes_in += sum(len(buffer) for handle, buffer in zip(handles, frame.buffers, strict=True) if handle)
        return frame

    def take_back(self, pipe: CallPipe, number: int) -> None:
        """A peer has returned a loan."""
        self._lender.take_back(pipe, number)

    def forget(self, pipe: CallPipe) -> None:
        """A peer is lost."""
        self._lender.forget(pipe)
        self._chunks.forget(pipe)

    def _give_back(self, pipe: CallPipe, number: int) -> None:
        # Called by finalizers, which run anywhere, also while this thread holds the pipe's lock; so sending is left to
        # the reactor.
        pipe.borrower.returns.append(number)
        self._reactor.call_soon(partial(self._return, pipe))

    def _return(self, pipe: CallPipe) -> None:
        self._queue_returns(pipe)
        self._reactor.flush(pipe)

    def _queue_returns(self, pipe: CallPipe) -> None:
        returns = pipe.borrower.returns
        while returns:
            try:
                pipe.put(Frame.RETURN, returns.popleft(), b"")
            except IndexError:
                return  # another thread was faster
