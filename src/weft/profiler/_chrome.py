"""Traces in Chrome's format, which Perfetto and chrome://tracing show."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from weft._base.files import write_output
from weft._base.timeline import Phase
from weft._base.types import Json
from weft.profiler._collector import Collector
from weft.profiler._exchanges import exchange_events
from weft.profiler._names import operator_name
from weft.profiler._shares import shares_of

_CATEGORIES = {Phase.BLOCK: "user_annotation", Phase.COLLECTIVE: "communication", Phase.DATA: "user_annotation"}


def chrome_events(notes: Collector) -> list[dict[str, Json]]:
    """The entries of a trace; times in microseconds since the profile began."""
    process = os.getpid()
    entries: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "weft"}}
    ]

    def add(category: str, name: str, thread: int, start: float, end: float, **details: object) -> None:
        entries.append(
            {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread}
            | {"ts": 1e-3 * (start - notes.start_ns), "dur": 1e-3 * (end - start), "args": details}
        )

    for span in notes.spans:
        add(_CATEGORIES.get(span.phase, "weft"), span.name, span.thread, span.start, span.end, phase=str(span.phase))
    shares = shares_of(notes.computed)
    for operator in notes.operators:
        shapes = [list(aval.shape) for aval in operator.signature.avals]
        details: dict[str, Any] = {
            "Input Dims": shapes,
            "Call stack": ";".join(operator.stack),
            "modules": list(operator.modules),
        }
        if operator.number in shares:
            details["computed in us, estimated"] = 1e-3 * shares[operator.number]
        start = operator.at - notes.recording_ns
        add("cpu_op", operator_name(operator.signature), operator.thread, start, operator.at, **details)
    for start, end, applications in notes.computed:
        add("program", f"program of {len(applications)} operators", _PROGRAMS, start, end)
    entries.append({"ph": "M", "name": "thread_name", "pid": process, "tid": _PROGRAMS, "args": {"name": "programs"}})
    return entries + _exchanges(notes, process)


_PROGRAMS = 1
"""The number of the thread under which programs are shown."""
_WORKERS = 1 << 23
"""The number of the process under which worker 0 is shown: beyond those of processes."""


def _exchanges(notes: Collector, process: int) -> list[dict[str, Json]]:
    """The entries of exchanges with other processes, and of what other workers have done for calls."""
    entries: list[dict[str, Any]] = []
    workers: set[int] = set()
    for number, event in enumerate(exchange_events(notes, shapes=True, memory=True, flops=True, phases=True)):
        common = {"name": event.key, "cat": "communication", "pid": process, "tid": event.thread, "ts": event.start}
        if event.is_remote:
            workers.add(event.node_id)
            common["pid"] = _WORKERS + event.node_id
        if event.is_async:  # they may overlap
            entries.append({**common, "ph": "b", "id": number})
            entries.append({**common, "ph": "e", "id": number, "ts": event.start + event.cpu_time_total})
        else:
            details = {"Input Dims": event.input_shapes} if event.is_operator else {}
            entries.append({**common, "ph": "X", "dur": event.cpu_time_total, "args": details})
    for worker in sorted(workers):
        name = {"name": f"worker {worker}, for calls of this one"}
        entries.append({"ph": "M", "name": "process_name", "pid": _WORKERS + worker, "tid": 0, "args": name})
    return entries


def write_trace(
    path: str | os.PathLike[str], entries: Iterable[dict[str, object]], metadata: Mapping[str, object]
) -> None:
    """Write a trace as JSON, compressed if the path ends with `.gz`."""
    write_json(path, {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": list(entries), **metadata})


def write_json(path: str | os.PathLike[str], content: object) -> None:
    """Write JSON, compressed if the path ends with `.gz`."""
    data = json.dumps(content).encode()
    write_output(path, gzip.compress(data) if os.fspath(path).endswith(".gz") else data)
