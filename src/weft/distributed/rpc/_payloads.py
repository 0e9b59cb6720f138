"""How long buffers travel: lent where the peer is on this host, else in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft._comm.shared_memory.loans import Lender
from weft._comm.transport import wire
from weft._comm.transport.chunks import Chunks, PendingFrame
from weft._comm.transport.pipe import Bytes, Pipe
from weft._comm.transport.reactor import Reactor
from weft._tensor.convert import room
from weft.distributed.rpc._protocol import Frame, Mark
from weft.errors import DistNetworkError

LONG = Mark.LENT | Mark.CUT
"""What one bit of is in the kinds that `Payloads.take` deals with, beside chunks."""

_LEAST = 1 << 16  # bytes from which on a buffer is lent, or cut


class Payloads:
    """What a worker has lent, what it borrows, and what is on its way to it. `widen(pipe)` has a pipe get lanes."""

    def __init__(self, reactor: Reactor, widen: Callable[[Pipe], None]) -> None:
        self._reactor = reactor
        self._widen = widen
        self._lender = Lender()
        self._chunks = Chunks(room)

    def put(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: Sequence[memoryview]) -> None:
        """Put a frame down, to be sent, behind what is given back."""
        self._put_returns(pipe)
        if not any(len(buffer) >= _LEAST for buffer in buffers):
            pipe.put(kind, number, body, buffers)
            return
        if pipe.same_host:
            mark, carry = Mark.LENT, partial(self._lender.lend, pipe)
        else:
            self._widen(pipe)
            mark, carry = Mark.CUT, partial(self._chunks.put, pipe, Frame.CHUNK)
        handles = [carry(buffer) if len(buffer) >= _LEAST else b"" for buffer in buffers]
        short = [buffer for handle, buffer in zip(handles, buffers, strict=True) if not handle]
        pipe.put(kind | mark, number, body, [wire.pack(*handles), *short])
        if not pipe.same_host:
            for lane in pipe.lanes:
                self._reactor.flush(lane)
            return
        pipe.bytes_out += sum(len(buffer) for handle, buffer in zip(handles, buffers, strict=True) if handle)
        if pipe.close_reason is not None:  # it was lost meanwhile
            self._lender.forget(pipe)

    def take(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> PendingFrame | None:
        """A frame that is long, or one that is complete now; None while some of it is still to come.

        `DistNetworkError` for loans or chunks that are none.
        """
        if kind == Frame.CHUNK:
            self._widen(pipe)
            return self._chunks.take(pipe.main, number, body, buffers)
        handles, short = wire.unpack(bytes(buffers[0])) if buffers else [], iter(buffers[1:])
        if kind & LONG != (Mark.LENT if pipe.same_host else Mark.CUT) or handles.count(b"") != len(buffers) - 1:
            raise DistNetworkError("it sent a malformed frame")
        parcel = PendingFrame(pipe, kind & ~LONG, number, body)
        if not pipe.same_host:
            return self._chunks.claim(parcel, handles, short)
        give_back = partial(self._give_back, pipe)
        parcel.buffers = [pipe.borrower.borrow(handle, give_back) if handle else next(short) for handle in handles]
        pipe.bytes_in += sum(len(buffer) for handle, buffer in zip(handles, parcel.buffers, strict=True) if handle)
        return parcel

    def take_back(self, pipe: Pipe, number: int) -> None:
        """A peer has given a loan back."""
        self._lender.take_back(pipe, number)

    def forget(self, pipe: Pipe) -> None:
        """A peer is lost."""
        self._lender.forget(pipe)
        self._chunks.forget(pipe)

    def _give_back(self, pipe: Pipe, number: int) -> None:
        pipe.borrower.returns.append(number)
        self._reactor.call_soon(partial(self._return, pipe))

    def _return(self, pipe: Pipe) -> None:
        self._put_returns(pipe)
        self._reactor.flush(pipe)

    def _put_returns(self, pipe: Pipe) -> None:
        returns = pipe.borrower.returns
        while returns:
            try:
                pipe.put(Frame.RETURN, returns.popleft(), b"")
            except IndexError:
                return  # another thread was faster
