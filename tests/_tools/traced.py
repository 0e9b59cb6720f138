"""Cases of traces, and programs in which workers die."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from tests.distributed.rpc.gate import open_gate, wait_for_gate
from tests.distributed.rpc.leaks import nothing_is_left
from tests.waiting import until
from weft.distributed import rpc
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._trace import log, recording

case = Cases()


class Box:
    def put(self, x):
        return x


def same(x):
    return x


def wrong():
    raise KeyError("k")


def onward(to, x):
    return rpc.rpc_sync(to, same, (x,))


def makes_box():
    return Box()


def asks_for(to):
    return rpc.remote(to, makes_box).rpc_sync().put(3)


@rpc.functions.async_execution
def onward_later(to, x):
    """Its second call is made by a callback."""
    return rpc.rpc_async(to, same, (x,)).then(lambda done: rpc.rpc_async(to, same, (done.value() + 1,)).wait())


def call_and_die():
    rpc.rpc_sync("w2", same, (1,))
    die()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def is_traced():
    """Whether this worker takes part in any trace; that of this question has ended, as it belongs to none."""
    return current_agent().tracing.active


def _name(function):
    return f"{function.__module__}.{function.__qualname__}".removeprefix("__main__.")


def _untraced(*workers):
    for worker in workers:
        assert not rpc.rpc_sync(worker, is_traced)


def _wait_until_untraced(*workers):
    for worker in workers:
        until(lambda worker=worker: not rpc.rpc_sync(worker, is_traced), f"{worker} is traced on")


def _times(event):
    return event.sent, event.arrived, event.started, event.finished, event.received


def _summary(trace, parent=None):
    """The tree of calls below one."""
    return [
        (event.caller.name, event.worker.name, event.function.rpartition(".")[2], _summary(trace, event.id))
        for event in trace.events
        if event.parent == parent
    ]


@case
def every_way_to_call_is_an_event_with_halves_by_both_workers():
    elements = torch.ones(1 << 18)
    rpc.rpc_sync("w1", same, (0,))  # belongs to no trace
    with rpc.trace() as trace:
        rpc.rpc_sync("w1", same, (elements,))
        rpc.rpc_async("w1", same, (1,)).wait()
        ref = rpc.remote("w1", makes_box)
        ref.rpc_sync().put(1)
        rpc.rpc_sync(rpc.get_worker_info(), same, (2,))
        ref.rpc_async().put(2).wait()
        ref.remote().put(4).to_here()
        with pytest.raises(KeyError, match="k"):
            rpc.rpc_sync("w1", wrong)
        assert trace.events == []
    rpc.rpc_sync("w1", same, (0,))
    assert [event.function for event in trace.events] == [
        _name(same),
        _name(same),
        _name(makes_box),
        "RRef.put",
        _name(same),
        "RRef.put",
        "RRef.put",
        "RRef.to_here",
        _name(wrong),
    ]
    assert [event.worker.name for event in trace.events].count("w0") == 1
    assert {event.caller for event in trace.events} == {rpc.get_worker_info()}
    assert [event.error for event in trace.events] == [None] * 8 + ["KeyError"]
    for event in trace.events:
        assert 0 <= event.sent <= event.arrived <= event.started <= event.finished <= event.received < trace.seconds
        assert event.request_bytes > 0
        assert event.answer_bytes > 0
        assert event.queue_seconds == event.started - event.arrived
        assert event.run_seconds == event.finished - event.started
        assert event.total_seconds == event.received - event.sent
    for size in (trace.events[0].request_bytes, trace.events[0].answer_bytes):
        assert 4 << 18 < size < (4 << 18) + 1000
    _untraced("w0", "w1")


@case
def calls_of_called_functions_are_theirs():
    """Calls that called functions make are known as theirs, on all workers and by one clock."""
    with rpc.trace() as trace:
        rpc.rpc_sync("w1", onward, ("w2", 1))
        rpc.rpc_sync("w1", asks_for, ("w2",))
        rpc.rpc_sync("w1", onward_later, ("w2", 1))
    same_there = ("w1", "w2", "same", [])
    assert _summary(trace) == [
        ("w0", "w1", "onward", [same_there]),
        ("w0", "w1", "asks_for", [("w1", "w2", "makes_box", []), ("w1", "w2", "put", [])]),
        ("w0", "w1", "onward_later", [same_there, same_there]),
    ]
    by_id = {event.id: event for event in trace.events}
    for event in trace.events:
        assert list(_times(event)) == sorted(_times(event))
        if event.parent is not None:
            parent = by_id[event.parent]
            assert parent.started <= event.sent <= event.received <= parent.finished
    _untraced("w0", "w1", "w2")


@case
def a_worker_has_one_trace_at_a_time():
    with (
        rpc.trace() as trace,
        pytest.raises(
            RuntimeError, match=r"^trace\(\): WorkerInfo\(id=0, name=w0\) has a trace open already; close it, or use"
        ),
        rpc.trace(),
    ):
        pass
    assert trace.events == []
    _untraced("w0", "w1", "w2")


@case
def a_trace_without_calls_is_a_table_without_rows():
    with rpc.trace() as trace:
        pass
    head = "worker function calls failed request answer queued ms ran ms underway ms total ms"
    assert trace.table().split() == head.split()


@case
def a_block_that_raises_ends_its_trace():
    with pytest.raises(KeyError, match="k"), rpc.trace():
        raise KeyError("k")
    _untraced("w0", "w1", "w2")


@case
def calls_of_another_workers_trace_belong_to_none_here():
    assert rpc.rpc_sync("w1", traces_here) == ["onward", "same"]
    _untraced("w0", "w1", "w2")


def traces_here():
    """A trace of another worker, which calls back."""
    with rpc.trace() as trace:
        rpc.rpc_sync("w0", onward, ("w2", 1))
    return [event.function.rpartition(".")[2] for event in trace.events]


@case
def a_call_without_an_answer_has_times_up_to_the_end():
    with rpc.trace() as trace:
        begun = rpc.rpc_async("w1", wait_for_gate)
        rpc.rpc_sync("w1", same, (1,))
    event = trace.events[0]
    assert event.sent <= event.arrived
    assert all(map(math.isnan, (event.finished, event.received)))
    rpc.rpc_sync("w1", open_gate)
    begun.wait()
    _untraced("w0", "w1")


def lost():
    """What a worker has recorded is lost with it; what others have is not."""
    with rpc.trace() as trace:
        rpc.rpc_sync("w3", same, (1,))
        with pytest.raises(RuntimeError, match="was lost"):
            rpc.rpc_sync("w1", call_and_die)
    served, died = trace.events
    assert not any(map(math.isnan, _times(served)))
    assert (died.function, died.error) == (_name(call_and_die), "LostWorkerError")
    assert [math.isnan(time) for time in _times(died)] == [False, True, True, True, False]
    assert "call_and_die" in trace.table()
    _untraced("w0", "w3")
    _wait_until_untraced("w2")  # by its only caller


def opens_and_dies():
    rpc.trace().__enter__()
    rpc.rpc_sync("w2", onward, ("w0", 1))
    die()


def opener():
    """When the worker that has opened a trace is lost, all who took part give it up."""
    with pytest.raises(RuntimeError, match="was lost"):
        rpc.rpc_sync("w1", opens_and_dies)
    _wait_until_untraced("w2", "w0")
    with rpc.trace() as trace:
        rpc.rpc_sync("w2", onward, ("w0", 1))
    assert len(trace.events) == 2


@contextmanager
def eleven_calls():
    """A trace of three calls that call on, four that are under way together, and one that has no answer at its end."""
    with rpc.trace() as trace:
        for x in range(3):
            rpc.rpc_sync("w1", onward, ("w2", x))
        futures = [rpc.rpc_async("w1", same, (x,)) for x in range(4)]
        rpc.rpc_async("w1", wait_for_gate)
        assert [future.wait() for future in futures] == [0, 1, 2, 3]
    try:
        yield trace
    finally:
        rpc.rpc_sync("w1", open_gate)


@case
def the_table_has_a_row_for_each_worker_and_function():
    with eleven_calls() as trace:
        lines = [line.split() for line in trace.table().splitlines()]
    assert {tuple(line[:4]) for line in lines[1:]} == {
        ("w1", _name(onward), "3", "0"),
        ("w2", _name(same), "3", "0"),
        ("w1", _name(same), "4", "0"),
        ("w1", _name(wait_for_gate), "1", "0"),
    }
    totals = [float(line[-1]) for line in lines[1:]]
    assert totals == sorted(totals, reverse=True)


def exported(trace):
    """What stands in the file for viewers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        trace.export_chrome_trace(path)
        return json.loads(path.read_text(), parse_constant=pytest.fail)["traceEvents"]


@case
def the_file_for_viewers_names_the_workers_and_has_all_calls():
    with eleven_calls() as trace:
        found = exported(trace)
    assert {event["args"]["name"]: event["pid"] for event in found if event.get("name") == "process_name"} == {
        "w0": 0,
        "w1": 1,
        "w2": 2,
    }
    assert sum(event["ph"] == "X" and event["cat"] == "call" for event in found) == len(trace.events) == 11


@case
def what_the_file_shows_in_one_row_does_not_overlap():
    with eleven_calls() as trace:
        slices = [event for event in exported(trace) if event["ph"] == "X"]
    rows = {}
    for event in slices:
        rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(spans))


@case
def arrows_of_the_file_begin_before_they_end():
    with eleven_calls() as trace:
        found = exported(trace)
    starts, ends = ({event["id"]: event for event in found if event["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) >= 10
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]


def set_clock_ahead(seconds):
    log.perf_counter = recording.perf_counter = lambda: time.perf_counter() + seconds


@case
def times_are_by_one_clock_though_those_of_the_hosts_differ():
    rpc.rpc_sync("w1", set_clock_ahead, (1e6,))
    rpc.rpc_sync("w2", set_clock_ahead, (-1e6,))
    try:
        with rpc.trace() as trace:
            rpc.rpc_sync("w1", onward, ("w2", 1))
    finally:
        for worker in ("w1", "w2"):
            rpc.rpc_sync(worker, set_clock_ahead, (0.0,))
    assert len(trace.events) == 2
    for event in trace.events:
        times = _times(event)
        assert max(times) - min(times) < 1000
        assert 0 <= event.run_seconds <= event.total_seconds


def main():
    program, rank, size, address = sys.argv[1:]
    job.join(rank, size, address)
    if program == "cases":
        if rank == "0":
            job.serve_cases(case, int(size))
        rpc.shutdown()
        return
    if rank == "0":
        {"lost": lost, "opener": opener}[program]()
        nothing_is_left("w2")
    with pytest.raises(RuntimeError, match=r"^shutdown: worker w1 ended without completing"):
        rpc.shutdown()
    print(job.PASSED, flush=True)


if __name__ == "__main__":
    main()
