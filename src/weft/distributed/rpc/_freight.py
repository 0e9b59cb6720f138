"""How long buffers travel: lent where the peer is on this host, else within the frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from weft._comm import wire
from weft._comm.hub import Hub
from weft._comm.loans import Lender
from weft._comm.pipe import Bytes, Pipe
from weft.errors import DistNetworkError

RETURN = 1 << 7
"""The kind of a frame that gives a loan back, by its number."""

_LENT = 1 << 8  # added to the kind of a frame some of whose buffers are lent
_LONG = 1 << 16  # bytes from which on a buffer is lent


class Freight:
    """What a worker has lent, and what it borrows."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lender = Lender()

    def put(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: Sequence[memoryview]) -> None:
        """Put a frame down, to be sent, behind what is given back."""
        self._put_returns(pipe)
        if buffers and pipe.near and any(len(buffer) >= _LONG for buffer in buffers):
            told = [self._lender.lend(pipe, one) if len(one) >= _LONG else b"" for one in buffers]
            short = [one for one in buffers if len(one) < _LONG]
            pipe.put(kind | _LENT, number, body, [wire.pack(*told), *short])
            pipe.bytes_out += sum(len(one) for one in buffers if len(one) >= _LONG)
            if pipe.why is not None:  # it was lost meanwhile
                self._lender.forget(pipe)
        else:
            pipe.put(kind, number, body, buffers)

    def take(self, pipe: Pipe, kind: int, buffers: list[memoryview]) -> tuple[int, list[Any]]:
        """The kind of a frame that has come, and its buffers. `DistNetworkError` for loans that are none."""
        if not kind & _LENT:
            return kind, buffers
        told, short = wire.unpack(bytes(buffers[0])) if buffers else [], iter(buffers[1:])
        if not pipe.near or told.count(b"") != len(buffers) - 1:
            raise DistNetworkError("it sent a malformed frame")
        give_back = partial(self._give_back, pipe)
        taken = [pipe.borrower.borrow(one, give_back) if one else next(short) for one in told]
        pipe.bytes_in += sum(len(found) for one, found in zip(told, taken, strict=True) if one)
        return kind & ~_LENT, taken

    def take_back(self, pipe: Pipe, number: int) -> None:
        """A peer has given a loan back."""
        self._lender.take_back(pipe, number)

    def forget(self, pipe: Pipe) -> None:
        """A peer is lost."""
        self._lender.forget(pipe)

    def _give_back(self, pipe: Pipe, number: int) -> None:
        pipe.borrower.returns.append(number)
        self._hub.soon(partial(self._return, pipe))

    def _return(self, pipe: Pipe) -> None:
        self._put_returns(pipe)
        self._hub.flush(pipe)

    def _put_returns(self, pipe: Pipe) -> None:
        returns = pipe.borrower.returns
        while returns:
            try:
                pipe.put(RETURN, returns.popleft(), b"")
            except IndexError:
                return  # another thread was faster
