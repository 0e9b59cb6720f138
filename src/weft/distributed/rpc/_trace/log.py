"""What one worker records of a trace: its halves of calls, and the call that a thread serves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from time import perf_counter
from typing import NamedTuple, TypeVar

from weft._comm.transport.pipe import Bytes
from weft.distributed.rpc._message import Buffer
from weft.distributed.rpc._references import GloballyUniqueId
from weft.distributed.rpc._workers import WorkerInfo

T = TypeVar("T")


@dataclass(slots=True)
class CallerHalf:
    """The caller's half of a call. Times are seconds of the worker's clock."""

    parent: GloballyUniqueId | None
    to: WorkerInfo
    function: str
    request_bytes: int
    sent: float
    received: float = nan
    error: str | None = None


@dataclass(slots=True)
class CalleeHalf:
    """The callee's half of a call."""

    arrived: float
    started: float = nan
    finished: float = nan
    answer_bytes: int = 0


@dataclass
class Log:
    """One worker's halves of a trace's calls: those made by its `callers`, and those to its `peers`."""

    trace: bytes
    sent: dict[GloballyUniqueId, CallerHalf] = field(default_factory=dict[GloballyUniqueId, CallerHalf])
    served: dict[GloballyUniqueId, CalleeHalf] = field(default_factory=dict[GloballyUniqueId, CalleeHalf])
    peers: set[WorkerInfo] = field(default_factory=set[WorkerInfo])
    callers: set[WorkerInfo] = field(default_factory=set[WorkerInfo])
    over: bool = False


class CallSpan(NamedTuple):
    """A call that is being served."""

    log: Log
    call: GloballyUniqueId

    def run(self, function: Callable[[], T]) -> T:
        """Run the called function; calls that it makes have this span as their parent."""
        self.log.served[self.call].started = perf_counter()
        with use_span(self):
            return function()

    def answered(self, body: bytes, buffers: Sequence[memoryview]) -> None:
        """Note that the function is done."""
        half = self.log.served[self.call]
        half.finished, half.answer_bytes = perf_counter(), size(body, buffers)


class _ThreadLocal(threading.local):
    span: CallSpan | None = None


_thread_local = _ThreadLocal()


def current_span() -> CallSpan | None:
    """The call that this thread serves in a trace."""
    return _thread_local.span


@contextmanager
def use_span(span: CallSpan) -> Generator[None]:
    """Serve a call; calls that are made in the block have it as their parent."""
    before, _thread_local.span = _thread_local.span, span
    try:
        yield
    finally:
        _thread_local.span = before


def size(body: Bytes, buffers: Sequence[Buffer]) -> int:
    """The bytes of a message."""
    return len(body) + sum(map(len, buffers))
