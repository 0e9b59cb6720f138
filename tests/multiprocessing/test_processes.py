"""Processes that run one function."""

from __future__ import annotations

import multiprocessing as python
import os
import pickle
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
import weft.multiprocessing as mp
from tests.multiprocessing import functions
from tests.waiting import until

START = ["spawn", "forkserver"]


def received(end):
    """What comes through a pipe, within a minute."""
    assert end.poll(60), "nothing has come"
    return end.recv()


def wait_for(context, **options):
    until(lambda: context.join(**options), "the processes do not end")


@pytest.mark.parametrize("start_method", START)
def test_tensors_come_through_queues(start_method):
    context = mp.get_context(start_method)
    given, results = context.SimpleQueue(), context.SimpleQueue()
    x = weft.tensor([[1.5, -2.0]], dtype=weft.bfloat16, requires_grad=True)
    started = mp.start_processes(functions.doubled, (given, results), 2, join=False, start_method=start_method)
    assert started is not None
    assert started.pids() == [process.pid for process in started.processes]
    given.put(x)
    given.put(weft.arange(3))
    found = [results.get()[1] for _ in range(2)]
    wait_for(started)
    assert started.join()
    expected = {weft.bfloat16: [[3, -4]], weft.int64: [0, 2, 4]}
    assert {y.dtype: y.tolist() for y in found} == expected
    given.close()
    results.close()


def test_a_forking_pickler_takes_tensors():
    reader, writer = mp.Pipe(duplex=False)
    writer.send({"x": weft.nn.Parameter(weft.ones(2)), "y": np.arange(2)})
    found = reader.recv()
    assert isinstance(found["x"], weft.nn.Parameter)
    assert found["x"].tolist() == [1, 1]
    reader.close()
    writer.close()


def test_what_a_process_raised_is_raised_with_its_traceback():
    with pytest.raises(mp.ProcessRaisedException) as raised:
        mp.spawn(functions.fails, (1, True), 2)  # process 0 waits, and is ended
    text = str(raised.value)
    assert re.match(
        r"\n\n-- Process 1 terminated with the following error:\nTraceback \(most recent call last\):\n", text
    )
    assert 'raise KeyError("the sky")' in text
    assert text.endswith("\nKeyError: 'the sky'\n")
    assert raised.value.error_index == 1
    assert raised.value.msg == text
    with pytest.raises(ProcessLookupError):
        os.kill(raised.value.error_pid, 0)


def test_the_first_failure_is_raised_not_its_consequence():
    context = mp.get_context("spawn")
    with pytest.raises(mp.ProcessRaisedException, match="the sky") as raised:
        mp.spawn(functions.fails_for_want_of_the_other, (context.SimpleQueue(), context.Event()), 2)
    assert raised.value.error_index == 1


def test_the_first_failure_is_raised_though_it_leaves_its_group_before_it_is_reported(tmp_path):
    with pytest.raises(mp.ProcessRaisedException, match="the sky") as raised:
        mp.spawn(functions.fails_before_it_leaves, (f"file://{tmp_path}/store",), 2)
    assert raised.value.error_index == 1


def test_a_long_text_comes_whole():
    with pytest.raises(mp.ProcessRaisedException, match=r"x{200000}"):
        mp.spawn(functions.tells_much)


@pytest.mark.parametrize(
    ("code", "text", "name"),
    [
        (3, "process 0 terminated with exit code 3", None),
        (-signal.SIGKILL, "process 0 terminated with signal SIGKILL", "SIGKILL"),
        (
            -(signal.SIGRTMIN + 1),
            f"process 0 terminated with signal <Unknown signal {signal.SIGRTMIN + 1}>",
            f"<Unknown signal {signal.SIGRTMIN + 1}>",
        ),
    ],
)
def test_how_a_process_ended_is_told(code, text, name):
    with pytest.raises(mp.ProcessExitedException, match=f"^{text}$") as raised:
        mp.start_processes(functions.ends, (code,), start_method="forkserver")
    assert (raised.value.exit_code, raised.value.signal_name) == (code, name)
    again = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(again, mp.ProcessException)
    assert (str(again), vars(again)) == (text, vars(raised.value))


def test_who_does_not_heed_is_killed():
    ready = mp.get_context("spawn").Event()
    started = mp.spawn(functions.deaf, (ready,), 2, join=False)
    assert started is not None
    with pytest.raises(mp.ProcessRaisedException, match="after the other is deaf"):
        wait_for(started, grace_period=0.1)
    assert started.processes[0].exitcode == -signal.SIGKILL


def test_a_wait_may_be_short():
    context = mp.get_context("spawn")
    pids, ready = context.Pipe(duplex=False)
    words, ended = context.Pipe(duplex=False)
    started = mp.spawn(functions.waits, (ready, ended), join=False, daemon=True)
    assert started is not None
    assert received(pids) == started.pids()[0]
    assert started.join(timeout=0) is False
    assert started.processes[0].daemon
    os.kill(started.pids()[0], signal.SIGINT)
    assert received(words) == "interrupted"
    assert started.join(timeout=60) is True  # an interruption is no failure
    for end in (pids, ready, words, ended):
        end.close()


PARENT = """
import sys
from multiprocessing.connection import Connection
import weft.multiprocessing as mp
from tests.multiprocessing import functions

mp.spawn(functions.waits, tuple(Connection(int(fd)) for fd in sys.argv[1:]), 2)
"""


IGNORING = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a shell's jobs in the background do


@pytest.mark.parametrize("parent", [PARENT, IGNORING + PARENT], ids=["heeding interrupts", "ignoring interrupts"])
def test_processes_end_with_their_parent(parent):
    pids, ready = python.Pipe(duplex=False)
    words, ended = python.Pipe(duplex=False)
    ends = [str(end.fileno()) for end in (ready, ended)]
    process = subprocess.Popen([sys.executable, "-c", parent, *ends], pass_fds=(ready.fileno(), ended.fileno()))
    try:
        watched = [os.pidfd_open(received(pids)) for _ in range(2)]
    finally:
        process.kill()
        process.wait()
    assert [received(words) for _ in range(2)] == ["interrupted"] * 2
    for pidfd in watched:
        os.close(pidfd)
    for end in (pids, ready, words, ended):
        end.close()


def test_a_process_in_which_xla_runs_may_be_forked():
    program = (
        "import weft, weft.multiprocessing as mp\n"
        "from tests.multiprocessing.functions import adds_up\n"
        "print(weft.ones(2).sum().item())\n"
        "mp.start_processes(adds_up, nprocs=2, start_method='fork')"
    )
    environment = {**os.environ, "WEFT_TIER": "compiled"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.stdout, done.stderr) == ("2.0\n", "")


def test_a_process_that_has_computed_nothing_may_be_forked():
    program = (
        "import weft, weft.multiprocessing as mp\n"
        "from tests.multiprocessing.functions import adds_up\n"
        "mp.start_processes(adds_up, nprocs=2, start_method='fork')\n"
        "print(weft.ones(2).sum().item())"
    )
    found = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("2.0\n", "")


def test_what_cannot_be_started_leaves_nothing_behind():
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object"):
        mp.spawn(functions.returns, (lock,))
    assert not python.active_children()


def test_spawn_only_spawns():
    with pytest.warns(FutureWarning, match=r"^This method only supports start_method=spawn \(got: forkserver\)"):
        mp.spawn(functions.returns, start_method="forkserver")
    with pytest.warns(UserWarning, match=r"^SpawnContext is renamed to ProcessContext since 1\.4 release\.$"):
        assert mp.SpawnContext([], []).join()


def test_pythons_names_are_here():
    assert [name for name in python.__all__ if getattr(mp, name) != getattr(python, name)] == []
    assert weft.multiprocessing is mp
    assert {"spawn", "Queue", "set_sharing_strategy"} < set(dir(mp))


def test_sharing_strategies_are_checked():
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    assert mp.get_sharing_strategy() == "file_descriptor"
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError, match=r"^invalid sharing strategy 'pigeons', expected one of "):
        mp.set_sharing_strategy("pigeons")


def test_nothing_here_loads_tensors():
    program = "import sys, weft.multiprocessing as mp; mp.spawn; mp.Queue; print({'jax', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_arguments_are_checked_before_anything_is_started():
    with pytest.raises(TypeError, match=r"^args must be a tuple of the function's further arguments, but got 3; write"):
        mp.spawn(functions.doubled, args=3)
    with pytest.raises(TypeError, match=r"^nprocs must be an integer, but got '2'$"):
        mp.spawn(functions.doubled, nprocs="2")
