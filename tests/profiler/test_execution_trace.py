"""Execution traces: the operators of a run as a graph in a file."""

from __future__ import annotations

import json
import threading

import pytest

import weft
from weft.profiler import ExecutionTraceObserver, ProfilerActivity, itt, profile, record_function, schedule

PROCESS = "[pytorch|profiler|execution_trace|process]"
THREAD = "[pytorch|profiler|execution_trace|thread]"


def nodes_of(path):
    return json.loads(path.read_text())["nodes"]


def values(node, side):
    return [value[0] if isinstance(value, list) else value for value in node[side]["values"]]


def test_nodes_are_operators_and_blocks(tmp_path):
    x = weft.arange(6.0).reshape(2, 3)
    observer = ExecutionTraceObserver().register_callback(tmp_path / "trace.json")
    assert observer.is_registered
    assert not observer.is_running()
    observer.start()
    with record_function("block"):
        largest, places = x.sort(descending=True)
        added = largest + 2
    places * 2  # pyright: ignore[reportUnusedExpression]
    observer.stop()
    added.tolist()
    observer.unregister_callback()
    process, thread, block, largest, added, doubled = nodes_of(tmp_path / "trace.json")
    assert [node["name"] for node in (process, thread, block)] == [PROCESS, THREAD, "block"]
    assert [node["name"] for node in (largest, added, doubled)] == ["aten::sort", "aten::add", "aten::mul"]
    parents = [node["ctrl_deps"] for node in (thread, block, largest, added, doubled)]
    assert parents == [process["id"], thread["id"], block["id"], block["id"], thread["id"]]
    assert largest["outputs"]["types"] == ["Tensor(float)", "Tensor(long int)"]
    assert values(added, "inputs") == [values(largest, "outputs")[0], 2]
    assert values(doubled, "inputs")[0] == values(largest, "outputs")[1]
    assert largest["inputs"]["values"][0][3:] == [6, 4, "cpu"]
    assert (largest["inputs"]["shapes"], largest["inputs"]["strides"]) == ([[2, 3]], [[3, 1]])


def test_backward_passes_and_threads_are_told_apart(tmp_path):
    w = weft.ones(3, requires_grad=True)
    observer = ExecutionTraceObserver().register_callback(tmp_path / "trace.json")
    observer.start()
    other = threading.Thread(target=lambda: weft.zeros(2))
    other.start()
    other.join()
    w.sin().sum().backward()
    observer.cleanup()
    nodes = nodes_of(tmp_path / "trace.json")
    attributes = {node["name"]: {entry["name"]: entry["value"] for entry in node["attrs"]} for node in nodes}
    assert attributes["aten::sin"]["scope"] == 0
    assert attributes["aten::grad of sin"]["scope"] == 1
    assert attributes["aten::zeros"]["tid"] != attributes["aten::sin"]["tid"]


def test_it_runs_with_the_steps_of_a_profile(tmp_path):
    observer = ExecutionTraceObserver().register_callback(tmp_path / "trace.json")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
        execution_trace_observer=observer,
    ) as trace:
        for step in range(6):
            with record_function(f"step {step}"):
                weft.ones(2)
            trace.step()
        assert trace.execution_trace_observer.get_output_file_path() == str(tmp_path / "trace.json")
    assert [node["name"] for node in nodes_of(tmp_path / "trace.json") if node["name"].startswith("step")] == [
        "step 2",
        "step 3",
    ]
    observer.unregister_callback()
    observer.start()  # without a file
    assert not observer.is_running()
    assert observer.get_output_file_path() is None


def test_a_file_that_cannot_be_written_is_refused_at_once():
    observer = ExecutionTraceObserver()
    with pytest.raises(OSError, match="none"):
        observer.register_callback("/proc/none/trace.json")
    assert not observer.is_registered


def test_ranges_of_itt_are_those_of_nvtx():
    assert not itt.is_available()
    assert itt.range_push("a") == 0
    with itt.range("b {}", 1):
        itt.mark("c")
        assert itt.range_push("d") == 2
        itt.range_pop()
    assert itt.range_pop() == 0
