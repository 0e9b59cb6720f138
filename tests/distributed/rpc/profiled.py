"""Cases of profiles that follow calls to where these run."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from weft._base.timeline import Listeners
from weft.autograd.profiler import profile, record_function
from weft.distributed import autograd as dist_autograd
from weft.distributed import rpc

case = Cases()
REMOTE = "#remote_op: "


class Box:
    _noted = None

    def __init__(self):
        self.x = torch.ones(3)

    def doubled(self):
        return self.x * 2

    @rpc.functions.async_execution
    def later(self, to):
        return rpc.rpc_async(to, torch.neg, (self.x,))


def named(x):
    with record_function("forward"):
        return (x @ x).relu()


def wrong(x):
    torch.ones(2).tanh().tolist()
    raise KeyError("k")


@rpc.functions.async_execution
def later_wrong(x):
    return rpc.rpc_async("w2", wrong, (x,))


@rpc.functions.async_execution
def no_future(x):
    return x


@rpc.functions.async_execution
def onward(to, x):
    return rpc.rpc_async(to, torch.add, (x, 1)).then(lambda done: done.value() * 2)


def listens():
    """Whether this worker has any profile left."""
    return bool(Listeners.all or Listeners.of_exchanges)


def events_of(notes):
    """Events by name; of the remote ones those whose name ends with this."""
    return {event.name: event for event in notes.function_events}


@case
def a_call_has_the_operators_of_the_other_worker():
    x = torch.ones(4, 4)
    with profile(record_shapes=True) as notes:
        result = rpc.rpc_sync("w1", torch.add, (x, x))
        later = rpc.rpc_async("w2", named, (x,))
        later.wait()
    torch.testing.assert_close(result, x + x)
    events = events_of(notes)
    call = events["rpc_sync#aten::add(w0 -> w1)"]
    assert (call.is_async, call.is_remote, call.node_id, call.count) == (True, False, 0, 1)
    operator = events[f"{call.name}{REMOTE}aten::add"]
    assert (operator.is_remote, operator.node_id, operator.input_shapes) == (True, 1, [[4, 4], [4, 4]])
    assert call.time_range.start <= operator.time_range.start
    prefix = f"rpc_async#named(w0 -> w2){REMOTE}"
    block = events[f"{prefix}forward"]
    assert [child.name for child in block.cpu_children] == [f"{prefix}aten::matmul", f"{prefix}aten::relu"]
    assert all(child.cpu_parent is block for child in block.cpu_children)
    table = notes.key_averages().table()
    assert "Node ID" in table
    assert "Times of remote operators are those of the other worker" in table
    assert notes.self_cpu_time_total < sum(event.self_cpu_time_total for event in notes.function_events)
    assert not rpc.rpc_sync("w1", listens)


@case
def without_their_options_shapes_and_bytes_stay_away():
    x = torch.ones(4, 4)
    for memory in (False, True):
        with profile(profile_memory=memory) as notes:
            rpc.rpc_sync("w1", torch.add, (x, x))
        operator = events_of(notes)[f"rpc_sync#aten::add(w0 -> w1){REMOTE}aten::add"]
        assert operator.input_shapes == []
        assert operator.cpu_memory_usage == (64 if memory else 0)


@case
def calls_of_called_functions_are_followed():
    with profile() as notes:
        result = rpc.rpc_sync("w1", onward, ("w2", torch.ones(3)))
    assert result.tolist() == [4.0] * 3
    events = events_of(notes)
    inner = f"rpc_sync#onward(w0 -> w1){REMOTE}rpc_async#aten::add(w1 -> w2)"
    assert (events[inner].is_remote, events[inner].node_id) == (True, 1)
    assert events[f"{inner}{REMOTE}aten::add"].node_id == 2


@case
def references_and_their_methods_are_followed():
    with profile() as notes:
        box = rpc.remote("w1", Box)
        assert box.rpc_sync().doubled().tolist() == [2.0] * 3
        assert box.rpc_async().later("w2").wait().tolist() == [-1.0] * 3
        assert box.remote().doubled().to_here().tolist() == [2.0] * 3
        own = rpc.remote("w0", torch.mul, (torch.ones(2), 3))
        assert own.to_here().tolist() == [3.0] * 2
        own._get_profiling_future().wait()
    events = events_of(notes)
    assert f"rpc_remote#Box(w0 -> w1){REMOTE}aten::ones" in events
    assert f"rpc_sync#doubled(w0 -> w1){REMOTE}aten::mul" in events
    assert f"rpc_async#later(w0 -> w1){REMOTE}rpc_async#aten::neg(w1 -> w2){REMOTE}aten::neg" in events
    assert f"rpc_remote#doubled(w0 -> w1){REMOTE}aten::mul" in events
    assert "rpc_async#doubled(w0 -> w1)" not in events  # the look whether there is such a method
    assert events[f"rpc_remote#aten::mul(w0 -> w0){REMOTE}aten::mul"].node_id == 0


@case
def anything_that_can_be_called_is_followed():
    with profile() as notes:
        assert rpc.rpc_sync("w1", min, (3, 2)) == 2
        assert rpc.rpc_sync("w1", partial(max, 5), (3,)) == 5
        assert rpc.rpc_sync("w1", lambda x: x + 1, (3,)) == 4
        assert rpc.rpc_sync("w1", torch.nn.Linear(2, 3), (torch.ones(1, 2),)).shape == (1, 3)
        left = rpc.rpc_async("w1", named, (torch.ones(2, 2),))  # whose answer comes when it will
    left.wait()
    names = {event.name for event in notes.function_events if event.is_async}
    assert {"rpc_sync#min(w0 -> w1)", "rpc_async#named(w0 -> w1)"} <= names
    assert any("lambda" in name for name in names)


@case
def errors_are_those_of_the_function():
    with profile() as notes:
        with pytest.raises(KeyError, match="k"):
            rpc.rpc_sync("w1", wrong, (1,))
        with pytest.raises(KeyError, match="k"):
            rpc.rpc_sync("w1", later_wrong, (1,))
        reference = rpc.remote("w1", wrong, (1,))
        with pytest.raises(KeyError, match="k"):
            reference.to_here()
        with pytest.raises(RuntimeError, match=r"must return a torch\.futures.Future"):
            rpc.rpc_sync("w1", no_future, (1,))
        after = rpc.rpc_async("w1", torch.neg, (torch.ones(1),))
        after.wait()
    events = events_of(notes)
    assert f"rpc_sync#wrong(w0 -> w1){REMOTE}aten::tanh" in events
    assert f"rpc_remote#wrong(w0 -> w1){REMOTE}aten::tanh" in events
    nested = f"rpc_sync#later_wrong(w0 -> w1){REMOTE}rpc_async#wrong(w1 -> w2){REMOTE}aten::tanh"
    assert nested in events
    failed = events["rpc_sync#wrong(w0 -> w1)"]
    assert failed.time_range.end < events["rpc_async#aten::neg(w0 -> w1)"].time_range.start
    assert not rpc.rpc_sync("w1", listens)


@case
def gradients_flow_through_calls_that_are_followed():
    x = torch.ones(3, requires_grad=True)
    with dist_autograd.context() as context:
        with profile():
            loss = rpc.rpc_sync("w1", torch.mul, (x, 3)).sum()
        with profile() as notes:
            dist_autograd.backward(context, [loss])
        assert dist_autograd.get_gradients(context)[x].tolist() == [3.0] * 3
    events = events_of(notes)
    whole = events["torch::distributed::autograd::backward"]
    for name in ("SendRpcBackward", "RecvRpcBackward"):
        assert events[name].count == 1
        assert events[name].cpu_time_total < whole.cpu_time_total


@case
def traces_show_the_other_worker_as_a_process():
    with profile() as notes:
        rpc.rpc_sync("w1", named, (torch.ones(2, 2),))
    with tempfile.TemporaryDirectory() as folder:
        notes.export_chrome_trace(f"{folder}/trace.json")
        entries = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    name = "rpc_sync#named(w0 -> w1)"
    assert [entry["ph"] for entry in entries if entry["name"] == name] == ["b", "e"]
    (matmul,) = [entry for entry in entries if entry["name"] == f"{name}{REMOTE}aten::matmul"]
    titles = {entry["pid"]: entry["args"]["name"] for entry in entries if entry["name"] == "process_name"}
    assert titles[matmul["pid"]] == "worker 1, for calls of this one"


@case
def a_block_may_end_with_a_future():
    with profile() as notes:
        with record_function("sending") as block:
            later = block._call_end_callbacks_on_future(rpc.rpc_async("w1", torch.neg, (torch.ones(2),)))
            with pytest.raises(RuntimeError, match="can only be called once"):
                block._call_end_callbacks_on_future(later)
        assert later.wait().tolist() == [-1.0] * 2
    assert events_of(notes)["sending"].is_async


if __name__ == "__main__":
    job.main(case)
