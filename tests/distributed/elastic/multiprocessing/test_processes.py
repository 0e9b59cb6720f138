"""Processes that end well, fail, are killed, ignore signals, leave others behind, or lose their parent."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import weft
from tests.distributed.elastic.multiprocessing import programs
from tests.distributed.elastic.multiprocessing.programs import await_end, line_of
from tests.waiting import is_gone
from weft.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    MultiprocessContext,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    start_processes,
)
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError
from weft.errors import ArgumentError, DistError


def started(entrypoint, *args, **options):
    """One process for each tuple of arguments."""
    numbered = dict(enumerate(args))
    return start_processes("trainer", entrypoint, numbered, {rank: {} for rank in numbered}, **options)


def result_of(entrypoint, *args, **options) -> RunProcsResult:
    result = started(entrypoint, *args, **options).wait(programs.DEADLINE)
    assert result is not None
    return result


# --- ending well ---


def test_functions_return_their_values():
    context = started(programs.add, (1, 2), ("a", "b"))
    assert isinstance(context, MultiprocessContext)
    pids = context.pids()
    assert sorted(pids) == [0, 1]
    result = context.wait()
    assert result == RunProcsResult({0: 3, 1: "ab"}, {}, {0: "", 1: ""}, {0: "", 1: ""})
    assert not result.is_failed()
    assert all(is_gone(pid) for pid in pids.values())


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_other_start_methods_return_values(method):
    script = (
        "from tests.distributed.elastic.multiprocessing import programs\n"
        "from weft.distributed.elastic.multiprocessing import start_processes\n"
        "if __name__ == '__main__':\n"
        f"    context = start_processes('t', programs.add, {{0: (1, 2)}}, {{0: {{}}}}, start_method={method!r})\n"
        "    print(context.wait(20).return_values)\n"
        f"    context = start_processes('t', programs.rest, {{0: ('ready',)}}, {{0: {{}}}}, start_method={method!r})\n"
        "    programs.line_of(programs.Path('ready'))\n"
        "    context.close()\n"
        "    print(programs.is_gone(context.pids()[0]))\n"
    )
    assert python("-c", script) == "{0: 3}\nTrue\n"


def python(*args, code=0, env=None):
    """What a program prints."""
    found = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    assert found.returncode == code, found.stderr
    return found.stdout


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    """Programs that tests start find the tests, and leave what they write in a folder of the test's."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(map(str, (Path(__file__).parents[4], Path(weft.__file__).parents[1])))
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a program that is killed leaves its error files
    monkeypatch.chdir(tmp_path)


def test_each_rank_has_an_environment_of_its_own():
    context = start_processes("t", programs.env, {0: ("A",), 1: ("A",)}, {0: {"A": "x"}, 1: {"A": "y"}})
    assert context.wait().return_values == {0: "x", 1: "y"}


def test_values_larger_than_a_pipe_come_back():
    assert result_of(programs.zeros, (1 << 22,)).return_values == {0: bytes(1 << 22)}


def test_a_function_that_ends_its_process_well_returns_none():
    assert result_of(programs.leave, (0,)).return_values == {0: None}
    assert result_of(programs.leave_at_once, ()).return_values == {0: None}


def test_programs_take_arguments_as_text(tmp_path):
    context = started("echo", (1, 2, 3), ([1, 2, 3],), log_dir=tmp_path, redirects=Std.OUT)
    assert isinstance(context, SubprocessContext)
    result = context.wait()
    assert result.return_values == {0: None, 1: None}
    assert [Path(result.stdouts[rank]).read_text() for rank in (0, 1)] == ["1 2 3\n", "[1, 2, 3]\n"]
    assert result.stderrs == {0: "", 1: ""}


def test_wait_gives_up_at_its_timeout_and_goes_on_later():
    context = started("sleep", (1000,))
    try:
        assert context.wait(0) is None
        assert context.wait(0.01, period=10) is None
        os.kill(context.pids()[0], signal.SIGKILL)
        assert context.wait(period=1000).failures[0].exitcode == -signal.SIGKILL
    finally:
        context.close()


def test_a_context_of_functions_is_made_as_in_pytorch():
    context = MultiprocessContext("trainer", math.hypot, {0: (3, 4)}, {0: {}}, "spawn", DefaultLogsSpecs())
    context.start()
    assert context.wait().return_values == {0: 5.0}


def test_a_context_starts_once():
    context = started("true", ())
    with pytest.raises(DistError, match=r"^trainer: the processes have been started already; make a new context$"):
        context.start()
    context.close()


# --- failing ---


def test_an_exception_is_reported_with_its_traceback():
    result = result_of(programs.fail, ("one\ntwo",))
    assert result.is_failed()
    assert not result.return_values
    failure = result.failures[0]
    assert failure.exitcode == 1
    assert failure.message["message"] == "ValueError: one\ntwo"
    assert "raise ValueError(text)" in failure.message["extraInfo"]["py_callstack"]
    assert str(failure.timestamp) == failure.message["extraInfo"]["timestamp"]


def test_a_failure_ends_the_other_ranks(tmp_path):
    context = started(sys.executable, ("-c", "import time; time.sleep(1000)"), ("-c", "1 / 0"))
    pids = context.pids()
    assert list(context.wait(period=1000).failures) == [1]
    assert is_gone(pids[0])


def test_an_exception_that_cannot_be_pickled_is_reported():
    assert result_of(programs.fail_unpicklably, ()).failures[0].message["message"] == "Unpicklable: held"


def test_a_value_that_cannot_be_pickled_is_a_failure():
    message = result_of(programs.a_lambda, ()).failures[0].message["message"]
    assert message.startswith("DistError: the value that a_lambda returned cannot be sent to the parent: ")


def test_a_value_that_cannot_be_read_is_an_error():
    with pytest.raises(DistError, match=r"^trainer: the value that local rank 0 returned cannot be read: invalid lit"):
        result_of(programs.poison, ())


def test_an_exit_code_is_kept():
    failure = result_of(programs.leave, (7,)).failures[0]
    assert (failure.exitcode, failure.error_file) == (7, "<N/A>")
    assert failure.message.startswith("exit code 7 without an exception: the function ended its process, or was never")
    failure = result_of("sh", ("-c", "exit 7")).failures[0]
    assert failure.message.startswith("exit code 7 without an error file; decorate the main function with")


def test_a_script_that_starts_functions_when_it_is_imported_is_told(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import math\n"
        "from weft.distributed.elastic.multiprocessing import start_processes\n"
        "print(start_processes('t', math.sqrt, {0: (4,)}, {0: {}}).wait().failures[0].message)\n"
    )
    assert 'a script that starts functions does so below `if __name__ == "__main__":`' in python(str(path))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"redirects": 9}, TypeError, r"^redirects must be a Std, or a dict of them by rank, got 9; see Std\."),
        ({"tee": {0: 3}}, TypeError, r"^tee must be a Std, or a dict of them by rank, got 3; see Std\.from_str$"),
        ({"start_method": "x"}, ValueError, r"^start_method must be one of .*forkserver, got 'x'$"),
        ({"log_line_prefixes": {1: ""}}, ValueError, r"^log_line_prefixes: there is no local rank 1; args has \[0\]$"),
        ({"envs": {0: {"A": 1}}}, TypeError, r"names and values must be text, got str and int at 'A' for rank 0$"),
        (
            {"envs": {0: {"API_KEY": b"hidden"}}},
            TypeError,
            r"^envs: names and values must be text, got str and bytes at 'API_KEY' for rank 0$",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started(wrong, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        start_processes(**{"name": "t", "entrypoint": "true", "args": {0: ()}, "envs": {0: {}}} | wrong)
    assert not os.listdir(tmp_path)


def test_a_signal_is_named():
    failure = result_of(programs.die, (signal.SIGKILL,)).failures[0]
    assert failure.exitcode == -9
    assert failure.message == f"Signal 9 (SIGKILL) received by PID {failure.pid}"


def test_a_program_tells_its_exception_without_record(tmp_path):
    result = result_of(sys.executable, ("-c", "def f():\n  1 / 0\nf()"), log_dir=tmp_path, redirects=Std.ERR)
    text = str(ChildFailedError("trainer", {4: result.failures[0]}))
    assert text.startswith(f"rank 4 on {os.uname().nodename}: ZeroDivisionError: division by zero (<string>:2)\n")


def test_a_program_that_does_not_exist_ends_those_before_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no_such_program"):
        started("/no_such_program", (), ())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("wrong", ["args", "envs"])
def test_a_missing_rank_is_refused(wrong):
    mappings = {"args": {0: (), 1: ()}, "envs": {0: {}, 1: {}}}
    mappings[wrong] = {0: (), 2: ()} if wrong == "args" else {0: {}}
    actual = r"\{0, 2\}" if wrong == "args" else r"\{0\}"
    with pytest.raises(
        RuntimeError, match=rf"^{wrong}, local rank mapping mismatch, expected: \{{0, 1\}}, actual: {actual}$"
    ):
        start_processes("t", "true", **mappings)


def test_logs_are_said_once(tmp_path):
    with pytest.raises(ArgumentError, match=r"^logs_specs already says where output goes; leave log_dir"):
        started("true", (), logs_specs=DefaultLogsSpecs(str(tmp_path)), tee=Std.OUT)


def test_a_full_disk_is_told(tmp_path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    script = (
        "from weft.distributed.elastic.multiprocessing import *\n"
        "program = ('-c', 'print(bytes(1 << 20))')\n"
        "specs = DefaultLogsSpecs('full', redirects=Std.ALL)\n"
        f"context = start_processes('t', {sys.executable!r}, {{0: program}}, {{0: {{}}}}, specs)\n"
        "print(context.wait(20).failures[0].message)\n"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "script.py").write_text(script)
    mount = "mount -t tmpfs -o size=64k tmpfs full && exec"
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} {sys.executable} script.py"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"exit code \d+; the disk that holds the logs in .*full/.*/attempt_0/0 is full\n", found.stdout)


# --- being ended ---


def test_close_ends_a_process_that_ignores_sigterm(tmp_path):
    context = started(programs.heed_nothing, (str(tmp_path / "ready"),))
    line_of(tmp_path / "ready")
    context.close(timeout=0.1)
    assert is_gone(context.pids()[0])
    context.close()


def test_close_ends_a_stopped_process_by_the_signal():
    context = started("sleep", (1000,))
    os.kill(context.pids()[0], signal.SIGSTOP)
    context.close(signal.SIGINT)
    assert context._exits == {0: -signal.SIGINT}


def test_close_ends_grandchildren(tmp_path):
    context = started(programs.with_grandchild, (str(tmp_path / "pid"),))
    grandchild = line_of(tmp_path / "pid")
    context.close()
    await_end(grandchild)


def test_grandchildren_do_not_outlive_a_rank_that_ends(tmp_path):
    assert not result_of(programs.leave_grandchild, (str(tmp_path / "pid"),)).is_failed()
    await_end(line_of(tmp_path / "pid"))


def test_all_die_with_a_killed_parent(tmp_path):
    parent, pids = agent(tmp_path)
    parent.kill()
    parent.wait()
    for pid in pids:
        await_end(pid)


def test_all_die_with_a_parent_that_just_leaves(tmp_path):
    parent, pids = agent(tmp_path, "leave")
    assert parent.wait(programs.DEADLINE) == 0
    for pid in pids:
        await_end(pid)


def agent(tmp_path, *args):
    """A program with two workers, their children, and a shell command; the numbers of all five."""
    module = "tests.distributed.elastic.multiprocessing.programs"
    parent = subprocess.Popen(
        [sys.executable, "-m", module, "agent", tmp_path, *args], stdout=subprocess.PIPE, text=True
    )
    with parent.stdout:
        pids = parent.stdout.readline().split()
    assert len(pids) == 5
    assert not any(map(is_gone, pids)) or args
    return parent, list(map(int, pids))


def test_a_signal_raises_in_wait_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    context = started("sleep", (1000,))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(SignalException, match=rf"^Process {os.getpid()} got signal: 15$") as caught:
        context.wait()
    assert caught.value.sigval is signal.SIGTERM
    context.close(caught.value.sigval)
    timer.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_while_processes_start_leaves_none(monkeypatch):
    pids, launch = [], SubprocessContext._launch

    def interrupted(context, rank):
        pids.append(launch(context, rank))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return pids[-1]

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(SubprocessContext, "_launch", interrupted)
    with pytest.raises(SignalException):
        started("sleep", (1000,), (1000,), (1000,))
    assert len(pids) == 2
    assert all(map(is_gone, pids))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_while_closing_kills(tmp_path):
    context = started(programs.heed_nothing, (str(tmp_path / "ready"),))
    line_of(tmp_path / "ready")
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(SignalException):
        context.close()
    timer.join()
    assert is_gone(context.pids()[0])


def test_descriptors_are_given_back():
    def count():
        return len(os.listdir("/proc/self/fd"))

    result_of(programs.add, (1, 2))  # starts what multiprocessing keeps
    before = count()
    result_of(programs.add, (1, 2))
    result_of("true", ())
    assert count() == before


def test_an_end_is_noticed_where_the_system_cannot_tell(monkeypatch):
    def missing(pid):
        raise OSError("this kernel has no pidfd_open")

    monkeypatch.setattr(os, "pidfd_open", missing)
    assert result_of(programs.add, (1, 2)).return_values == {0: 3}
    assert result_of("false", ()).failures[0].exitcode == 1
