"""What is told of a job whose ranks have died, hang, or are stopped: by real ranks that the launcher has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from weft._base.flight import FlightRecorder, State, read_recording
from weft._base.flight_report import crash_report

SECONDS = 60
PROGRAM = """
import ctypes, os, signal, sys, threading, time, traceback
from datetime import timedelta
import weft, weft.distributed as dist

case = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=600 if case == "hangs" else 2))
rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
x = weft.ones(10)
dist.all_reduce(x)  # FIRST
y = weft.ones(600, 600)
(y @ y).sum().item()  # PROGRAM

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

def waits(frame):  # for other ranks
    return any(each.f_code.co_filename.endswith("memory_group.py") for each, _ in traceback.walk_stack(frame))

def stop_within():
    while not waits(sys._current_frames()[main]):
        pass
    stop()

def wait_for_stop():  # of rank 1
    pid = store.get("process").decode()
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass

if rank == 1 and case == "stopped before":
    stop()
if rank == 1 and case == "stopped inside":
    main = threading.get_ident()
    threading.Thread(target=stop_within).start()
    store.set("process", str(os.getpid()))
if rank == 1 and case == "segmentation fault":
    ctypes.string_at(0)
if rank == 1 and case == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and case == "raises":
    z = weft.ones(3).exp()
    raise ValueError("on purpose")
if rank == 1 and case == "ends":
    sys.exit(0)
if case == "message":
    dist.recv(x, 1) if rank == 0 else time.sleep(600)  # RECEIVE
if rank == 0 and case == "hangs":
    print("waits", flush=True)
    time.sleep(600)
if case == "stopped inside" and rank == 0:
    wait_for_stop()
dist.all_reduce(x[:5] if case != "stopped inside" else weft.ones(1 << 20))  # SECOND
"""


@pytest.fixture
def job(tmp_path):
    """A function that starts a job of three ranks in a case; the job ends with the test."""
    script, started = tmp_path / "job.py", []
    script.write_text(textwrap.dedent(PROGRAM))

    def start(case, *options):
        command = [sys.executable, "-m", "weft", "run", "--nproc-per-node", "3", *options, str(script), case]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
        environment |= {"WEFT_CRASH_REPORT": str(tmp_path / "reports"), "WEFT_TIER": "auto"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(word):
    """`job.py:LINE` of the line with a comment."""
    return f"job.py:{[text.endswith(f'# {word}') for text in PROGRAM.splitlines()].index(True) + 1}"


def report_of(process, tmp_path):
    """What the launcher has said, and the report, by rank; the key None has what ranks were waiting for."""
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode != 0
    text = (tmp_path / "reports" / "crash_report_0_0.txt").read_text()
    waiting, *ranks = text.split("\nRank ")
    return errors, {None: waiting, **{int(part[0]): part for part in ranks}}


def test_a_rank_that_is_stopped_before_a_collective_is_missing(job, tmp_path):
    said, report = report_of(job("stopped before"), tmp_path)
    waiting = report[None].splitlines()
    assert waiting[1] == "  all_reduce, number 2 of the group 'default' (ranks 0,1,2)"
    for rank in (0, 2):
        (own,) = [text for text in waiting if text.startswith(f"    rank {rank}: failed after ")]
        assert own.endswith(line("SECOND"))
        assert "float32[5]" in own
    (missing,) = [text for text in waiting if "rank 1 is MISSING: last called number 1, all_reduce at" in text]
    assert line("FIRST") in missing
    assert "    stopped by a signal: rank 1" in waiting
    assert "\n".join(waiting[:-1]) in said
    assert "stopped by a signal" in report[1].splitlines()[0]
    assert "Timed out" in report[0] or "Timed out" in report[2]
    for rank in range(3):
        assert "all_reduce  float32[10]  done after" in report[rank]
        assert line("PROGRAM") in report[rank]
        assert "matmul(" in report[rank]


def test_a_rank_that_is_stopped_inside_a_collective_is_named(job, tmp_path):
    _, report = report_of(job("stopped inside"), tmp_path)
    waiting = report[None].splitlines()
    assert waiting[1] == "  all_reduce, number 2 of the group 'default' (ranks 0,1,2)"
    (own,) = [text for text in waiting if text.startswith("    rank 1: running for ")]
    assert own.endswith(line("SECOND"))
    assert "    it has failed because of rank 1" in waiting
    assert "    stopped by a signal: rank 1" in waiting
    assert "in all_reduce" in report[1].partition("stacks of its threads")[2]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("segmentation fault", "Fatal Python error: Segmentation fault"),
        pytest.param("killed", "all_reduce  float32[10]  done after", marks=pytest.mark.soak),
        ("raises", 'raise ValueError("on purpose")'),
    ],
)
def test_a_rank_that_has_died_is_missing(case, text, job, tmp_path):
    _, report = report_of(job(case), tmp_path)
    assert "rank 1 is MISSING: last called number 1, all_reduce" in report[None] or "nothing" in report[None]
    assert text in report[1]
    if case == "raises":
        assert "exp(float32[3])" in report[1]  # recorded, and not computed


def test_a_rank_that_has_ended_well_is_told_with_its_exit_code(job, tmp_path):
    _, report = report_of(job("ends"), tmp_path)
    (missing,) = [text for text in report[None].splitlines() if "rank 1 is MISSING: last called number 1" in text]
    assert missing.endswith("; it has ended with exit code 0")
    assert report[1].splitlines()[0].endswith(", which has ended with exit code 0)")


@pytest.mark.soak
def test_a_message_that_does_not_come_is_told(job, tmp_path):
    _, report = report_of(job("message"), tmp_path)
    assert "receive from rank 1  float32[10]  failed after" in report[0]
    assert line("RECEIVE") in report[0]
    assert "  rank 0: receive from rank 1 of the group 'default': failed after" in report[None]


def test_a_job_that_hangs_tells_where_when_it_is_ended(job, tmp_path):
    process = job("hangs")
    assert process.stdout.readline() == "waits\n"
    folder = tmp_path / "reports"
    process.send_signal(signal.SIGTERM)
    _, report = report_of(process, tmp_path)
    assert "time.sleep" not in report[None]
    assert "in <module>" in report[0]
    assert folder.exists()


def test_a_recording_survives_and_forgets_the_oldest(tmp_path):
    (tmp_path / "3").mkdir()
    recorder = FlightRecorder(tmp_path / "3", 3, 4)
    with pytest.raises(BlockingIOError):
        FlightRecorder(tmp_path / "3", 3, 4)

    def fails():
        raise OSError("no network")

    for _ in range(5):
        assert recorder.collective("all_reduce", "g", range(40), ["float32[2]"] * 6, "a.py:1", lambda x: x)(2) == 2
    with pytest.raises(OSError, match="no network"):
        recorder.collective("barrier", "g", (0, 3), (), "a.py:2", fails)()
    recorder.collective("broadcast", "h", (3,), (), "é" * 2000, lambda: None)
    end = recorder.program("run", "3 operators: " + "x" * 2000, "a.py:3")
    recording = read_recording(tmp_path / "3" / "flight.bin")
    assert recording.rank == 3
    assert recording.process == os.getpid()
    assert [entry.number for entry in recording.collectives] == [4, 5, 6, 7]
    assert [entry.state for entry in recording.collectives] == [State.DONE, State.DONE, State.FAILED, State.WAITING]
    assert recording.collectives[0].fields[4] == "float32[2], float32[2], float32[2], float32[2] and 2 more"
    assert [entry.state for entry in recording.programs] == [State.RUNNING]
    end(True)
    assert read_recording(tmp_path / "3" / "flight.bin").programs[0].ended >= recording.programs[0].started
    text = crash_report(tmp_path)
    assert "barrier, number 6 of the group 'g' (ranks 0,3)" in text
    assert "rank 0 is MISSING: has not recorded anything on this node" in text


def test_a_rank_that_waits_elsewhere_is_not_called_idle(tmp_path):
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    first, second = [FlightRecorder(tmp_path / str(rank), rank, 4) for rank in range(2)]
    for recorder in (first, second):
        recorder.collective("barrier", "g", (0, 1), (), "a.py:1", lambda: None)()
    second.collective("all_reduce", "g", (0, 1), ["float32[2]"], "a.py:2", lambda: None)
    first.message("receive from rank 1", "g", (0, 1), ["float32[3]"], "a.py:3", lambda: None)
    waiting = crash_report(tmp_path).partition("\n\n")[0].splitlines()
    assert waiting[1].startswith("  rank 0: receive from rank 1 of the group 'g': ")
    assert waiting[1].endswith("float32[3]  a.py:3")
    assert "rank 0 is MISSING: it has called receive from rank 1 of the group 'g' at a.py:3 instead: " in waiting[-1]


def test_a_message_that_does_not_come_tells_where_the_other_rank_is(tmp_path):
    for rank in range(3):
        (tmp_path / str(rank)).mkdir()
    first, second, third = [FlightRecorder(tmp_path / str(rank), rank, 4) for rank in range(3)]
    first.message("receive from rank 1", "g", (0, 1), ["float32[3]"], "a.py:3", lambda: None)
    first.message("send to rank 2", "g", (0, 2), ["float32[3]"], "a.py:4", lambda: None)
    first.message("receive from any rank", "g", (0, 1, 2), ["float32[3]"], "a.py:5", lambda: None)
    second.collective("barrier", "h", (1,), (), "a.py:1", lambda: None)()
    second.program("run", "exp(float32[3])", "a.py:2")(True)
    third.end()

    def others(**options):
        return [line for line in crash_report(tmp_path, **options).splitlines() if line.startswith("    rank ")]

    at_program, ended = others(exit_codes={1: 3})
    assert at_program.startswith("    rank 1: it has ended with exit code 3; its last record, ")
    assert at_program.partition(" before: ")[2].startswith("a program (run) at a.py:2: done after ")
    assert ended.startswith("    rank 2: it has ended 0.")
    assert others(exit_codes={1: -9})[0].startswith("    rank 1: it was ended by SIGKILL; its last record, ")
    assert others(stopped=[1])[0].startswith("    rank 1: it was stopped by a signal; its last record, ")
    assert others(exit_codes={2: 0})[1] == "    rank 2: it has ended with exit code 0"
    second.collective("all_reduce", "h", (1,), (), "a.py:6", lambda: None)
    assert " before: all_reduce of the group 'h' at a.py:6: not begun " in others()[0]


def test_folders_without_a_recording_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no flight.bin: no process has recorded there"):
        crash_report(tmp_path)
    (tmp_path / "flight.bin").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"is not a recording of weft's flight recorder"):
        crash_report(tmp_path)
