"""Traces: which steps they cover, what is in them, and how they are written."""

from __future__ import annotations

import gzip
import json

import pytest

import weft
from weft.autograd.profiler import EventList, record_function
from weft.autograd.profiler import profile as old_profile
from weft.profiler import ProfilerAction, ProfilerActivity, profile, schedule, tensorboard_trace_handler


def test_schedules_are_cycles():
    action = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    names = [
        action(step).name[0] + ("S" if action(step) is ProfilerAction.RECORD_AND_SAVE else "") for step in range(11)
    ]
    assert names == ["N", "N", "W", "R", "RS", "N", "W", "R", "RS", "N", "N"]
    assert schedule(wait=1, warmup=0, active=1, skip_first_wait=1)(0) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=1, warmup=0, active=0)


def test_a_trace_has_the_blocks_of_its_steps(tmp_path):
    traces = []

    def ready(trace):
        traces.append([event.name for event in trace.events() if event.name.startswith(("ProfilerStep", "block"))])
        trace.export_chrome_trace(tmp_path / f"{len(traces)}.json.gz")

    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=0, active=1), on_trace_ready=ready
    ) as trace:
        trace.add_metadata("by", "test")
        for step in range(4):
            with record_function(f"block {step}"):
                (weft.ones(8) @ weft.ones(8)).item()
            trace.step()
    assert traces == [["ProfilerStep#1", "block 1"], ["ProfilerStep#3", "block 3"]]
    written = json.loads(gzip.decompress((tmp_path / "2.json.gz").read_bytes()))
    assert written["metadata"] == {"by": "test"}
    assert "block 3" in {event.get("name") for event in written["traceEvents"]}


def test_sums_by_name_do_not_count_time_twice():
    with profile() as trace:
        for _ in range(2):
            with record_function("outer"), record_function("inner"):
                weft.ones(3).sum().item()
    sums = {event.key: event for event in trace.key_averages()}
    assert (sums["outer"].count, sums["inner"].count) == (2, 2)
    assert sums["outer"].cpu_time_total >= sums["inner"].cpu_time_total > 0
    assert sums["outer"].self_cpu_time_total <= sums["outer"].cpu_time_total - sums["inner"].cpu_time_total + 1
    assert isinstance(trace.events(), EventList)
    lines = trace.key_averages().table(sort_by="cpu_time_total", row_limit=3).splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["Name", "Total", "Self", "Avg", "Calls"]
    with pytest.raises(KeyError, match="sort_by must be one of cpu_time_total"):
        trace.key_averages().table(sort_by="cuda_time")


def test_tensorboard_finds_its_files(tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path), "worker")):
        weft.ones(3).sum().item()
    names = {path.name for path in tmp_path.glob("plugins/profile/*/*")}
    assert {"worker.xplane.pb", "worker.trace.json.gz"} <= names


def test_what_is_not_there_is_an_error():
    trace = profile()
    with pytest.raises(RuntimeError, match="there is no complete trace yet"):
        trace.events()
    with pytest.raises(NotImplementedError, match=r"export_stacks: .* export_chrome_trace"):
        trace.export_stacks("x")
    with trace, pytest.raises(RuntimeError, match="a trace cannot be started"), profile():
        pass
    with pytest.raises(NotImplementedError, match=r"Use torch\.profiler\.profile"):
        old_profile()
