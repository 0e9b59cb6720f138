"""Traces in Chrome's format, which Perfetto and chrome://tracing show."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft._base.timeline import Phase
from weft._profile.collector import Collector
from weft._profile.shares import shares_of

_CATEGORIES = {Phase.BLOCK: "user_annotation", Phase.COLLECTIVE: "communication", Phase.DATA: "user_annotation"}


def chrome_events(notes: Collector) -> list[dict[str, Any]]:
    """The entries of a trace; times in microseconds since the profile began."""
    process = os.getpid()
    entries: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "weft"}}
    ]

    def add(category: str, name: str, thread: int, start: float, end: float, **details: Any) -> None:
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
            "Call stack": list(operator.stack),
            "modules": list(operator.modules),
        }
        if operator.number in shares:
            details["computed in us, estimated"] = 1e-3 * shares[operator.number]
        start = operator.at - notes.recording_ns
        add("cpu_op", f"aten::{operator.signature.name}", operator.thread, start, operator.at, **details)
    for start, end, applications in notes.computed:
        add("program", f"program of {len(applications)} operators", _PROGRAMS, start, end)
    entries.append({"ph": "M", "name": "thread_name", "pid": process, "tid": _PROGRAMS, "args": {"name": "programs"}})
    return entries


_PROGRAMS = 1
"""The number of the thread under which programs are shown."""


def write_trace(path: str | os.PathLike[str], entries: Iterable[dict[str, Any]], metadata: dict[str, Any]) -> None:
    """Write a trace as JSON, compressed if the path ends with `.gz`."""
    trace = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": list(entries), **metadata}
    content = json.dumps(trace).encode()
    Path(path).write_bytes(gzip.compress(content) if os.fspath(path).endswith(".gz") else content)
