"""Error files and the summary of failures."""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import re
import socket

import pytest

import weft
from weft._base.failing import before_leaving
from weft.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ErrorHandler,
    ProcessFailure,
    get_error_handler,
    record,
)
from weft.errors import DistBackendError, LostWorkerError, PreconditionError


@pytest.fixture(autouse=True)
def error_file(tmp_path, monkeypatch):
    """The error file of this process; the fault handler is put back to pytest's."""
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    monkeypatch.setattr(faulthandler, "enable", lambda **options: None)
    return path


def written(path, message="ValueError: bad", timestamp="1700000000"):
    stack = 'Traceback (most recent call last):\n  File "train.py", line 12, in main\n    step()\nValueError: bad\n'
    extra = {"py_callstack": stack, "timestamp": timestamp}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return str(path)


def test_a_recorded_function_writes_its_exception(error_file, tmp_path):
    @record
    def main(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        main("name")
    data = json.loads(error_file.read_text())
    assert data["message"]["message"] == "KeyError: 'name'"
    assert set(data["message"]["extraInfo"]) == {"py_callstack", "timestamp", "failed_at"}
    assert "raise KeyError(text)" in data["message"]["extraInfo"]["py_callstack"]
    assert os.listdir(tmp_path) == ["error.json"]


def test_a_recorded_function_returns(error_file):
    assert record(lambda: 5)() == 5
    assert record(lambda: os.sys.exit(0))() is None
    with pytest.raises(SystemExit):
        record(lambda: os.sys.exit(2))()
    assert not error_file.exists()


def test_the_inner_recording_stays(error_file):
    class Own(ErrorHandler):
        def record_exception(self, e):
            error_file.write_text("own")

    def main():
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        record(record(main, Own()))()
    assert error_file.read_text() == "own"
    assert type(get_error_handler()) is ErrorHandler


def test_an_error_file_that_cannot_be_written_hides_nothing(monkeypatch, caplog):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/no/such/folder/error.json")
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0)()
    assert "the error file cannot be written: [Errno 2]" in caplog.text


def test_a_child_failure_is_handed_on_with_its_exit_code(error_file, tmp_path):
    failure = ProcessFailure(0, 1, -11, written(tmp_path / "child.json"))

    @record
    def main():
        raise ChildFailedError("trainer", {0: failure})

    with pytest.raises(ChildFailedError):
        main()
    assert json.loads(error_file.read_text())["message"]["errorCode"] == -11


def test_a_failure_reads_its_file(tmp_path):
    failure = ProcessFailure(1, 22, 1, written(tmp_path / "e.json"))
    assert failure.message["message"] == "ValueError: bad"
    assert failure.timestamp == 1700000000
    assert re.fullmatch(r"2023-11-1\d_\d\d:\d\d:20", failure.timestamp_isoformat())
    assert failure.signal_name() == "<N/A>"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": {}}', '{"message": {"extraInfo": {"timestamp": "x"}}}'])
def test_a_damaged_error_file_is_told(tmp_path, text):
    path = tmp_path / "e.json"
    path.write_text(text)
    failure = ProcessFailure(0, 5, -9, str(path))
    assert failure.message.startswith(f"Signal 9 (SIGKILL) received by PID 5; its error file {path} cannot be read: ")


def test_the_summary_begins_with_the_first_failure(tmp_path):
    late = ProcessFailure(0, 10, -15, "")
    first = ProcessFailure(1, 11, 1, written(tmp_path / "e.json"))
    error = ChildFailedError("trainer", {6: late, 7: first})
    assert error.get_first_failure() == (7, first)
    lines = str(error).split("\n")
    host = socket.gethostname()
    assert lines[0] == f"rank 7 on {host}: ValueError: bad (train.py:12)"
    assert lines[1:5] == ["", "=" * 60, "trainer FAILED", "-" * 60]
    assert lines[5:7] == ["Failures:", "[0]:"]
    assert lines[8:11] == [
        f"  host      : {host}",
        "  rank      : 6 (local_rank: 0)",
        "  exitcode  : -15 (pid: 10) (SIGTERM)",
    ]
    assert "Root Cause (first observed failure):\n[1]:" in str(error)
    assert lines[-2:] == ["  ValueError: bad", "=" * 60]


@pytest.mark.parametrize(
    ("code", "seconds", "first"), [(-9, 1, "killed"), (-11, 1, "killed"), (-9, 5, "error"), (-6, 1, "error")]
)
def test_who_misses_a_killed_worker_may_say_so_before_its_end_is_noticed(tmp_path, code, seconds, first):
    file = written(tmp_path / "e.json")
    error = ProcessFailure(0, 10, 1, file)
    killed = ProcessFailure(1, 11, code, "", ended=error.timestamp + seconds)
    failed = ChildFailedError("trainer", {0: error, 1: killed})
    assert failed.get_first_failure()[1] is {"error": error, "killed": killed}[first]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (["one.py", weft.__file__, "<weft add>"], "one.py:1"),
        (["one.py", "lib.py", "<frozen os>", os.__file__], "lib.py:2"),
        (["one.py", "/venv/lib/python3.12/site-packages/numpy/linalg.py"], "one.py:1"),
        (["<string>", json.__file__], f"{json.__file__}:2"),
    ],
)
def test_the_line_is_the_innermost_of_the_users(files, shown):
    failure = ProcessFailure(0, 1, 1, "")
    stack = "".join(f'  File "{file}", line {line}, in f\n    f()\n' for line, file in enumerate(files, 1))
    failure.message = {"message": "KeyError: 'X'", "extraInfo": {"py_callstack": stack}}
    assert failure.headline() == f"KeyError: 'X' ({shown})"


def test_a_file_that_does_not_stay_is_not_named(tmp_path):
    path = written(tmp_path / "e.json")
    assert f"  error_file: {path}\n" in str(ChildFailedError("t", {0: ProcessFailure(0, 1, 1, path)}))
    assert path not in str(ChildFailedError("t", {0: ProcessFailure(0, 1, 1, path, temporary=True)}))


def test_failures_within_one_second_are_ordered_by_their_files(tmp_path):
    second, first = (written(tmp_path / name) for name in ("b", "a"))
    os.utime(first, (5, 5.25))
    os.utime(second, (5, 5.75))
    failures = {0: ProcessFailure(0, 1, 1, second), 1: ProcessFailure(1, 2, 1, first)}
    assert ChildFailedError("t", failures).get_first_failure()[0] == 1


def test_the_summary_travels():
    error = ChildFailedError("t", {0: ProcessFailure(0, 1, -9, "")})
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_no_failure_is_refused():
    with pytest.raises(PreconditionError, match=r"^t: a ChildFailedError needs at least one failure, got none$"):
        ChildFailedError("t", {})


def test_an_error_that_tells_of_a_missing_rank_is_not_the_first(tmp_path):
    """Even if it was recorded before: the other rank's clock may be late, or it took longer to record its own."""
    path = os.environ["TORCHELASTIC_ERROR_FILE"]

    def recorded_as(name, error):
        get_error_handler().record_exception(error)
        return os.replace(path, tmp_path / name) or str(tmp_path / name)

    missing = DistBackendError("rank 1 has left the group")
    missing.missing = (1,)
    wrapped = ValueError("no gradient")
    wrapped.__cause__ = LostWorkerError("worker a was lost")
    names = [recorded_as(str(at), each) for at, each in enumerate([missing, wrapped, KeyError("cause")])]
    failures = {rank: ProcessFailure(rank, 10 + rank, 1, name) for rank, name in enumerate(names)}
    assert ChildFailedError("t", failures).get_first_failure()[0] == 2
    del failures[2]
    assert ChildFailedError("t", failures).get_first_failure()[0] == 0
    failures[1] = ProcessFailure(1, 11, -9, "")
    assert ChildFailedError("t", failures).get_first_failure()[0] == 1


def test_an_error_is_recorded_when_the_rank_begins_to_leave(error_file):
    """Its file has the time of that, and is gone if the program goes on."""
    seen = []

    @record
    def program(*, handles):
        try:
            try:
                raise KeyError("name")
            finally:
                before_leaving()  # as groups do when they are destroyed
                seen.append(json.loads(error_file.read_text()))
        except KeyError:
            if not handles:
                raise

    program(handles=True)
    assert not error_file.exists()
    with pytest.raises(KeyError):
        program(handles=False)
    early, late = seen[1]["message"], json.loads(error_file.read_text())["message"]
    assert early["message"] == late["message"] == "KeyError: 'name'"
    assert early["extraInfo"]["failed_at"] == late["extraInfo"]["failed_at"]
