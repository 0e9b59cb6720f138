"""Steps, their closures, and regions that are a graph of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

import pytest

import weft as torch
import weft.xla as torch_xla
from weft.xla.core import xla_model as xm
from weft.xla.debug import metrics as met


def executions():
    data = met.metric_data("ExecuteTime")
    return 0 if data is None else data[0]


def pending():
    return torch.ones(2, device="xla") + 1


def test_a_step_is_one_program():
    device = xm.xla_device()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(5, 3).to(device)
    losses = []
    xm.mark_step()
    for _ in range(3):
        before = executions()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        xm.add_step_closure(lambda loss: losses.append(loss.item()), args=(loss,))
        xm.mark_step()
        assert executions() == before + 1
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_equal_devices_are_one():
    flat = torch.ones(29, device=torch.device("xla", 0))
    row = torch.ones(1, 29, device=torch.device("xla", 0))
    xm.mark_step()
    before = executions()
    y = flat.unsqueeze(0) + row
    z = y[0] + flat
    xm.mark_step()
    assert executions() == before + 1
    assert not y._read().is_pending
    assert not z._read().is_pending


def test_optimizers_end_steps_only_where_programs_do_not():
    w = torch.nn.Parameter(torch.ones(2, device="xla"))
    optimizer = torch.optim.SGD([w], lr=0.5)
    w.grad = torch.ones(2, device="xla")
    optimizer.step()
    assert not w._read().is_pending
    xm.mark_step()
    optimizer.step()
    assert w._read().is_pending
    xm.mark_step()
    assert not w._read().is_pending
    assert w.tolist() == [0, 0]


def test_nothing_is_computed_before_the_step_ends():
    x = pending()
    assert x._read().is_pending
    torch_xla.sync()
    assert not x._read().is_pending
    y = pending()
    with torch_xla.step():
        assert not y._read().is_pending
        x = pending()
        assert x._read().is_pending
    assert not x._read().is_pending


def test_the_step_ends_after_an_error_too():
    with suppress(KeyError), torch_xla.step():
        x = pending()
        raise KeyError
    assert not x._read().is_pending


def test_closures_run_in_order_when_their_tensors_are_computed():
    seen = []
    x = pending()
    captured = x * 3
    xm.add_step_closure(lambda a, b: seen.append((a, b.tolist())), args=("first", x))
    xm.add_step_closure(lambda: seen.append(captured.tolist()))
    assert seen == []
    xm.mark_step()
    assert seen == [("first", [2, 2]), [6, 6]]
    assert executions() == 1
    xm.mark_step()
    assert len(seen) == 2


def test_what_is_no_closure_is_refused_when_it_is_added():
    for arguments in ((3,), (print, 3)):
        with pytest.raises(
            TypeError, match=r"^add_step_closure: expected a function and a tuple of its arguments, got "
        ):
            xm.add_step_closure(*arguments)
    xm.mark_step()


def test_a_closure_of_a_closure_belongs_to_the_next_step():
    seen = []
    xm.add_step_closure(lambda: xm.add_step_closure(seen.append, args=("later",)))
    xm.mark_step()
    assert seen == []
    xm.mark_step()
    assert seen == ["later"]


def test_a_closure_that_raises_ends_the_step():
    seen = []
    xm.add_step_closure(lambda: {}["missing"])
    xm.add_step_closure(seen.append, args=(1,))
    with pytest.raises(KeyError, match="missing"):
        xm.mark_step()
    xm.mark_step()
    assert seen == []


def test_asynchronous_closures_run_in_order_in_a_thread_while_the_step_goes_on():
    seen, done, may_go = [], threading.Event(), threading.Event()
    x = pending()

    def report(tensor):
        may_go.wait()
        seen.append((tensor.tolist(), threading.current_thread() is threading.main_thread()))

    xm.add_step_closure(report, args=(x,), run_async=True)
    xm.add_step_closure(done.set, run_async=True)
    xm.add_step_closure(lambda: seen.append("synchronous"))
    xm.mark_step()
    may_go.set()
    assert done.wait(60)
    assert seen == ["synchronous", ([2, 2], False)]


def wait_for_closures():
    for thread in threading.enumerate():
        if thread.name == "step closures":
            thread.join()


FAILED = r"^Cannot run asynchronous closure due to previously raised exception$"


@pytest.mark.parametrize(
    "next_call", [xm.mark_step, xm.wait_device_ops, lambda: xm.add_step_closure(int)], ids=["step", "wait", "add"]
)
def test_a_failure_of_an_asynchronous_closure_is_raised_by_the_next_call(next_call):
    xm.add_step_closure(lambda: 1 // 0, run_async=True)
    xm.mark_step()
    wait_for_closures()
    with pytest.raises(RuntimeError, match=FAILED) as caught:
        next_call()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    next_call()  # it is told once


def test_closures_of_a_step_that_raises_an_earlier_failure_belong_to_the_next_step():
    may_fail, seen, done = threading.Event(), [], threading.Event()

    def fail():
        may_fail.wait()
        raise KeyError

    xm.add_step_closure(fail, run_async=True)
    xm.mark_step()
    xm.add_step_closure(done.set, run_async=True)
    xm.add_step_closure(seen.append, args=(1,))
    may_fail.set()
    wait_for_closures()
    with pytest.raises(RuntimeError, match=FAILED):
        xm.mark_step()
    assert (seen, done.is_set()) == ([], False)
    xm.mark_step()
    assert done.wait(60)
    assert seen == [1]


_LAST = """
import weft.xla.core.xla_model as xm

def report():
    raise KeyError("last")

xm.add_step_closure(report, run_async=True)
xm.mark_step()
"""


def test_the_failure_of_the_last_asynchronous_closure_is_printed_when_the_process_ends():
    ended = subprocess.run([sys.executable, "-c", _LAST], capture_output=True, text=True, check=False)
    assert "in report\n" in ended.stderr  # Python 3.13 shows the line, too
    assert "\nKeyError: 'last'\nraised by an asynchronous step closure, after which no step" in ended.stderr


def test_the_step_log(monkeypatch, capfd):
    xm.mark_step()
    monkeypatch.setenv("XLA_EMIT_STEPLOG", "1")
    xm.mark_step()
    assert capfd.readouterr().err == "torch_xla.core.xla_model::mark_step\n"


@pytest.mark.parametrize(
    ("variable", "wait", "waits"), [("", False, False), ("", True, True), ("1", False, True), ("0", True, False)]
)
def test_waiting_for_a_step(monkeypatch, variable, wait, waits):
    from weft.xla import _steps

    calls = []
    monkeypatch.setattr(_steps, "wait_device_ops", lambda: calls.append("waits"))
    monkeypatch.setenv("XLA_SYNC_WAIT", variable)
    xm.mark_step(wait=wait, reset_scope=False)
    assert calls == ["waits"] * waits


def test_waiting_ends_when_all_is_computed():
    x = torch.randn(64, 64, device="xla")
    x = x @ x
    xm.mark_step(wait=True)
    assert x._read().content.is_ready()


def test_a_function_as_a_graph_of_its_own():
    @torch_xla.compile
    def double(x):
        """Twice."""
        return x * 2

    assert double.__doc__ == "Twice."
    x = pending()
    y = double(x)
    assert not x._read().is_pending
    assert not y._read().is_pending
    assert executions() == 2
    assert y.tolist() == [4, 4]


def test_a_block_as_a_graph_of_its_own():
    with torch_xla.compile():
        x = pending()
    assert not x._read().is_pending


def test_a_full_graph_does_not_read_values():
    def mean(x):
        return x + x.mean().item()

    x = torch.arange(3.0).to("xla")
    assert torch_xla.compile(mean)(x).tolist() == [1, 2, 3]
    with pytest.raises(
        RuntimeError,
        match=r"^mean: Unexpected execution happens inside the compiled function: 1 program\(s\) ran before its end",
    ):
        torch_xla.compile(mean, full_graph=True)(x)
    with pytest.raises(RuntimeError, match=r"^stretch: Unexpected execution"):
        torch_xla.compile(mean, full_graph=True, name="stretch")(x)


def test_a_limit_of_different_graphs():
    double = torch_xla.compile(lambda x: x * 2 - 7, max_different_graphs=1, name="double")
    for size in (5, 5, 5):
        assert double(torch.ones(size).to("xla")).tolist() == [-5] * size
    with pytest.raises(
        RuntimeError, match=r"^double: 2 different graphs, but max_different_graphs=1; the shapes, or the way"
    ):
        double(torch.ones(6).to("xla"))
