"""Traces of remote calls: the worker that opened one merges the recordings of callers and callees."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import isnan, nan
from time import perf_counter
from typing import NamedTuple

from weft._base.types import Json
from weft._tools.tables import amount, table, text
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._call import PendingCall
from weft.distributed.rpc._references import GloballyUniqueId
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._trace.log import CalleeHalf, CallerHalf, Log
from weft.distributed.rpc._trace.recording import clock, end_trace
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import RpcError
from weft.profiler._chrome import write_json

_PATIENCE = 10.0  # seconds in which a worker must send its recording
_CLOCK_READS = 8  # of another worker's clock
_COLUMNS = (
    "worker",
    "function",
    " calls",
    " failed",
    " request",
    " answer",
    " queued ms",
    " ran ms",
    " underway ms",
    " total ms",
)


class CallRecord(NamedTuple):
    """A call of a trace.

    Times are in seconds since the trace was opened, by the clock of the worker that has opened it. A time is NaN if it
    is after the end of the trace, or is unknown because a worker was lost.

    id              number of the call
    parent          number of the call whose function has made it; None for calls of the worker that opened the trace
    caller, worker  the calling and the called worker
    function        name of the function; `RRef.name` for methods of a reference and `RRef.to_here`
    request_bytes   bytes of the request, including its tensors
    answer_bytes    bytes of the answer
    sent            when the caller has started to send
    arrived         when the callee has received the request
    started         when the function has started, after waiting for a thread
    finished        when the function has returned
    received        when the caller has received the answer
    error           type of the exception that the call has raised
    """

    id: GloballyUniqueId
    parent: GloballyUniqueId | None
    caller: WorkerInfo
    worker: WorkerInfo
    function: str
    request_bytes: int
    answer_bytes: int
    sent: float
    arrived: float
    started: float
    finished: float
    received: float
    error: str | None

    @property
    def queue_seconds(self) -> float:
        """The time that the call has waited for a thread of its callee."""
        return self.started - self.arrived

    @property
    def run_seconds(self) -> float:
        """The time that the function has run."""
        return self.finished - self.started

    @property
    def total_seconds(self) -> float:
        """The time that the caller has waited for the answer."""
        return self.received - self.sent


class CallTrace:
    """The result of `trace()`; it has events after the end of the block."""

    def __init__(self) -> None:
        self.events: list[CallRecord] = []
        """The calls, in the order in which they were sent."""
        self.seconds = nan
        """The time that the trace was open."""

    def table(self) -> str:
        """Sums by worker and function, as text; the largest sums of time come first.

        `underway` is the time spent neither waiting for a thread nor in the function: packing, sending, unpacking, and
        waiting to be read.
        """
        sums: defaultdict[tuple[str, str], list[CallRecord]] = defaultdict(list)
        for event in self.events:
            sums[event.worker.name, event.function].append(event)
        rows = sorted(sums.items(), key=lambda item: -_sum(event.total_seconds for event in item[1]))
        return text(table(_COLUMNS, [(*names, *_figures(events)) for names, events in rows]))

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as JSON for chrome://tracing and Perfetto.

        Each worker is a process, with rows for the calls that it has made and for the functions that it has run. Arrows
        lead from calls to functions.
        """
        write_json(path, {"traceEvents": list(_chrome(self.events, self.seconds)), "displayTimeUnit": "ms"})


@contextmanager
def trace() -> Generator[CallTrace]:
    """Record the remote calls that this worker makes within the block, and those made by the called functions.

    Calls of all threads are recorded: `rpc_sync`, `rpc_async`, `remote`, and operations on references. At the end, all
    workers that have taken part are asked for their recordings, and have 10 seconds to answer. Calls without an answer
    by then are recorded as such. `RuntimeError` if this worker has already opened a trace.
    """
    agent = current_agent()
    own, result, opened = agent.tracing.open(), CallTrace(), perf_counter()
    try:
        yield result
    finally:
        result.seconds = perf_counter() - opened
        result.events = _events(_logs(agent, own), opened)


class _Recording(NamedTuple):
    """The log of a worker, and the offset of its clock in seconds."""

    log: Log
    clock_offset: float


def _logs(agent: Agent, own: Log) -> dict[WorkerInfo, _Recording]:
    """The recordings of all living workers that have taken part."""
    logs = {agent.me: _Recording(agent.tracing.end(own.trace), 0.0)}
    waiting, visited = set(own.peers), {agent.me}
    while waiting := waiting - visited:
        visited |= waiting
        recordings = {} if agent.closing else _fetch(agent, waiting, own.trace)
        logs.update(recordings)
        waiting = {peer for recorded in recordings.values() for peer in recorded.log.peers}
    return logs


def _fetch(agent: Agent, peers: Iterable[WorkerInfo], trace: bytes) -> dict[WorkerInfo, _Recording]:
    """The recordings of some workers, without those that are lost or do not answer."""
    calls: dict[WorkerInfo, PendingCall] = {}
    recordings: dict[WorkerInfo, _Recording] = {}
    for peer in peers:
        with suppress(RpcError):
            calls[peer] = agent.ask(peer, end_trace, trace, limit=_PATIENCE).push()
    for peer, call in calls.items():
        with suppress(RpcError):
            recordings[peer] = _Recording(call.wait(), _clock_offset(agent, peer))
    return recordings


def _clock_offset(agent: Agent, peer: WorkerInfo) -> float:
    """The seconds by which a worker's clock is ahead of this one's; 0 if the clocks may be equal, as on one host.

    The other clock is read between sending the request and receiving the answer (as in NTP), which bounds the offset;
    the best of several bounds is used.
    """
    least, most = float("-inf"), float("inf")
    for _ in range(_CLOCK_READS):
        sent_at = perf_counter()
        theirs = agent.ask(peer, clock, limit=_PATIENCE).wait()
        least, most = max(least, theirs - perf_counter()), min(most, theirs - sent_at)
    return 0.0 if least <= 0 <= most else (least + most) / 2


def _events(logs: dict[WorkerInfo, _Recording], opened: float) -> list[CallRecord]:
    """All calls, with both halves merged and on one clock."""
    events = [
        _event(number, half, caller, opened + recorded.clock_offset, logs.get(half.to), opened)
        for caller, recorded in logs.items()
        for number, half in list(recorded.log.sent.items())
    ]
    return sorted(events, key=lambda event: event.sent)


def _event(
    number: GloballyUniqueId,
    half: CallerHalf,
    caller: WorkerInfo,
    start: float,
    callee: _Recording | None,
    opened: float,
) -> CallRecord:
    served, clock_offset = CalleeHalf(nan), 0.0
    if callee is not None:
        served, clock_offset = callee.log.served.get(number, served), callee.clock_offset
    clock_offset += opened
    return CallRecord(
        number,
        half.parent,
        caller,
        half.to,
        half.function,
        half.request_bytes,
        served.answer_bytes,
        half.sent - start,
        served.arrived - clock_offset,
        served.started - clock_offset,
        served.finished - clock_offset,
        half.received - start,
        half.error,
    )


# --- text and JSON ----------------------------------------------------------------------------------------------


def _sum(seconds: Iterable[float]) -> float:
    return sum(one for one in seconds if not isnan(one))


def _figures(events: list[CallRecord]) -> list[str]:
    seconds = [
        _sum(event.queue_seconds for event in events),
        _sum(event.run_seconds for event in events),
        _sum(event.total_seconds - (event.finished - event.arrived) for event in events),
        _sum(event.total_seconds for event in events),
    ]
    return [
        str(len(events)),
        str(sum(event.error is not None for event in events)),
        amount(sum(event.request_bytes for event in events)),
        amount(sum(event.answer_bytes for event in events)),
        *(f"{1000 * one:.3f}" for one in seconds),
    ]


_CALLS, _RUNS = 0, 1000  # the first rows of a worker's calls, and of the functions that it has run


def _chrome(events: list[CallRecord], end: float) -> Iterator[dict[str, Json]]:
    for worker in sorted({worker for event in events for worker in (event.caller, event.worker)}, key=_number):
        yield _named("process", worker.id, 0, worker.name)
        calls = [(event, event.sent, _until(event.received, end)) for event in events if event.caller == worker]
        ran = [
            (event, event.started, _until(event.finished, end))
            for event in events
            if event.worker == worker and not isnan(event.started)
        ]
        for what, first, slices in (("call", _CALLS, calls), ("run", _RUNS, ran)):
            rows = [first + row for row in _rows([(start, stop) for _, start, stop in slices])]
            for row in sorted(set(rows)):
                yield _named("thread", worker.id, row, f"{what}s")
            for (event, start, stop), row in zip(slices, rows, strict=True):
                yield from _slice(what, event, {"pid": worker.id, "tid": row, "ts": 1e6 * start}, stop - start)


def _slice(what: str, event: CallRecord, place: dict[str, Json], seconds: float) -> Iterator[dict[str, Json]]:
    """A span in a row, and its end of the arrow from the call to the function."""
    fields = {name: value for name, value in event._asdict().items() if value == value}  # JSON has no NaN
    fields |= {name: str(fields[name]) for name in ("id", "parent", "caller", "worker")}
    yield {"ph": "X", "name": event.function, "cat": what, "dur": 1e6 * seconds, "args": fields, **place}
    if not isnan(event.started):
        arrow = {"ph": "s"} if what == "call" else {"ph": "f", "bp": "e"}
        number = f"{event.id.created_on}.{event.id.local_id}"
        yield {**arrow, "name": "rpc", "cat": "rpc", "id": number, **place}


def _number(worker: WorkerInfo) -> int:
    return worker.id


def _named(what: str, process: int, row: int, name: str) -> dict[str, Json]:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": row, "args": {"name": name}}


def _until(time: float, end: float) -> float:
    return end if isnan(time) else time


def _rows(spans: list[tuple[float, float]]) -> list[int]:
    """A row for each span, such that the spans of one row do not overlap; in the order of their starts."""
    ends: list[float] = []
    rows = {}
    for at in sorted(range(len(spans)), key=lambda at: spans[at]):
        start, stop = spans[at]
        row = next((row for row, end in enumerate(ends) if end <= start), len(ends))
        ends[row:] = [stop, *ends[row + 1 :]]
        rows[at] = row
    return [rows[at] for at in range(len(spans))]
