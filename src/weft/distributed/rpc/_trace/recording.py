"""Recording of the calls of a trace on each worker.

A call of a trace carries the trace's name. Its caller records one half of the call and its callee the other, each by
its own clock. Calls made by the called function belong to the trace, too. At the end, the worker that has opened the
trace collects all halves. If it is lost, the workers that it has called drop their logs, and tell those that they have
called.
"""

from __future__ import annotations

import secrets
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import nan
from time import perf_counter
from typing import Protocol

from weft._base.types import Arg, Result
from weft._comm.transport.pipe import Bytes, CallPipe
from weft.distributed.rpc._call import PendingCall, PendingCalls
from weft.distributed.rpc._protocol import Answering, AnyReply, AnyRequest, Mark, Note, Reply, request
from weft.distributed.rpc._references import GloballyUniqueId
from weft.distributed.rpc._service import Method
from weft.distributed.rpc._trace.log import CalleeHalf, CallerHalf, CallSpan, Log, current_span, size, use_span
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import RpcError
from weft.futures import Future

_OPENER = struct.Struct("<QQ")  # number and incarnation of the worker that has opened a trace begin its name
_ENDED_TRACES = 64  # traces that are over, whose calls may still be on their way


class TracedCall(PendingCall):
    """A call that belongs to a trace. Calls made by its callbacks have the span in which the callbacks were added."""

    def __init__(
        self,
        log: Log,
        number: GloballyUniqueId,
        half: CallerHalf,
        calls: PendingCalls,
        pipe: CallPipe | None,
        seconds: float,
    ) -> None:
        super().__init__(calls, pipe, seconds)
        self._half = log.sent[number] = half
        log.peers.add(half.to)
        half.sent = perf_counter()

    def add_done_callback(self, callback: Callable[[Future[Result]], object]) -> None:
        span = current_span()
        super().add_done_callback(callback if span is None else partial(_run_within, span, callback))

    def _finish(self, value: object, error: BaseException | None) -> None:
        if not self._done:
            self._half.received = perf_counter()
            self._half.error = None if error is None else type(error).__name__
        super()._finish(value, error)


def _run_within(span: CallSpan, callback: Callable[[Future[Result]], object], done: Future[Result]) -> None:
    with use_span(span):
        callback(done)


class CallTracer:
    """The traces in which a worker takes part, including its own."""

    def __init__(self, me: WorkerInfo, tell: Callable[..., None]) -> None:
        self.own: Log | None = None
        self.active = False  # whether this worker takes part in any trace
        self._me = me
        self._tell = tell
        self._lock = threading.Lock()
        self._logs: dict[bytes, Log] = {}
        self._over: deque[bytes] = deque(maxlen=_ENDED_TRACES)

    def open(self) -> Log:
        """Start a trace of this worker's calls. `RuntimeError` if there is one already."""
        if self.own is not None:
            raise RpcError(f"trace(): {self._me} has a trace open already; close it, or use that one")
        trace = _opener(self._me) + secrets.token_bytes(8)
        self.own = self._log(trace)
        assert self.own is not None, "a fresh trace is not over"
        return self.own

    def end(self, trace: bytes) -> Log:
        """Stop recording a trace; returns its log."""
        with self._lock:
            self._over.append(trace)
            log = self._logs.pop(trace, None) or Log(trace)
            log.over = True
            if self.own is log:
                self.own = None
            if not self._logs:
                self.active = False
        return log

    def drop(self, trace: bytes, caller: WorkerInfo | None = None) -> None:
        """Drop a trace whose opener, or all of whose callers here, are lost; tell the workers called from here."""
        log = self._logs.get(trace)
        if log is None:
            return
        if caller is not None:
            log.callers.discard(caller)
            if log.callers or log is self.own:
                return
        for peer in self.end(trace).peers - {self._me}:
            if not trace.startswith(_opener(peer)):
                self._tell(peer, drop_trace, trace, caller and self._me)

    def lost(self, worker: WorkerInfo) -> None:
        """Handle the end of a worker."""
        for trace in list(self._logs):
            self.drop(trace, None if trace.startswith(_opener(worker)) else worker)

    def outgoing(
        self,
        to: WorkerInfo,
        request: AnyRequest | None,
        kind: int,
        number: int,
        content: Sequence[Arg],
        body: Bytes,
        buffers: list[memoryview],
    ) -> tuple[Callable[..., PendingCall], int, list[memoryview]]:
        """The type, kind and buffers of a call, which are changed if the call belongs to a trace."""
        span = current_span()
        function = title_of(content[0]) if request is None else request.title(content[1])
        # A call that a called function makes belongs to the trace of its caller, whichever worker has opened that.
        log = self.own if span is None or span.log.over else span.log
        if log is None or function is None:
            return PendingCall, kind, buffers
        parent = span.call if span is not None and span.log is log else None
        half = CallerHalf(parent, to, function, size(body, buffers), nan)
        call_type = partial(TracedCall, log, GloballyUniqueId(self._me.id, number), half)
        return call_type, kind | Mark.TRACED, [*buffers, memoryview(log.trace)]

    def incoming(self, caller: WorkerInfo, number: int, trace: bytes) -> CallSpan | None:
        """The span of a received call; None if its trace is over."""
        log = self._log(trace)
        if log is None:
            return None
        span = CallSpan(log, GloballyUniqueId(caller.id, number))
        log.served[span.call] = CalleeHalf(perf_counter())
        if caller != self._me:
            log.callers.add(caller)
        return span

    def _log(self, trace: bytes) -> Log | None:
        """The log of a trace, created if necessary; None for a trace that is over."""
        with self._lock:
            if trace in self._over:
                return None
            self.active = True
            return self._logs.setdefault(trace, Log(trace))


# --- controls -------------------------------------------------------------------


class TracedAgent(Answering, Protocol):
    """An agent, as far as traces need it."""

    tracing: CallTracer


@request(counted=False)
def end_trace(reply: Reply[TracedAgent], trace: bytes) -> None:
    """End a trace here; answered with what was recorded."""
    log = reply.agent.tracing.end(trace)
    reply.send(Log(trace, dict(log.sent), dict(log.served), set(log.peers)))  # copies, since calls may be starting


@Note
def drop_trace(agent: TracedAgent, trace: bytes, caller: WorkerInfo | None) -> None:
    """Drop a trace whose opener is lost, or whose calls from this caller are."""
    agent.tracing.drop(trace, caller)


@request(counted=False)
def clock(reply: AnyReply) -> None:
    """Answered with the time of this worker's clock."""
    reply.send(perf_counter())


def _opener(worker: WorkerInfo) -> bytes:
    return _OPENER.pack(worker.id, worker.incarnation)


def title_of(function: object) -> str | None:
    """The name of a function in traces; None if it is not a user's function."""
    if type(function) is Method:
        return None if function.test_only else f"RRef.{function.name}"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", type(function).__qualname__)
    return name if module in (None, "builtins", "__main__") else f"{module}.{name}"
