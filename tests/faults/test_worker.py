"""Workers that are killed or stopped, on one host."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.faults.job import Progress
from tests.waiting import until

TIMEOUT = 1.5  # seconds, of the group


def workers(node, size=2):
    """What the next workers say of themselves, by rank."""
    return sorted((node.worker() for _ in range(size)), key=lambda said: said["rank"])


def state(pid):
    """The state of a process: R runs, S waits, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def reductions(job, *flags, what, timeout=60):
    return job.run("--standalone", "--nproc-per-node", 2, *flags, program="reductions.py", args=(what, timeout))


@pytest.mark.parametrize("what", ["reduce", "wait"])
def test_a_killed_worker_is_started_again(job, run, what):
    node = reductions(job, "--max-restarts", 1, what=what)
    os.kill(workers(node)[1]["pid"], signal.SIGKILL)
    assert [said["restarts"] for said in workers(node)] == [1, 1]
    assert node.end() == 0, node.stderr


def test_without_restarts_the_killed_worker_is_named(job, run):
    node = reductions(job, "--max-restarts", 0, what=("reduce", "wait")[run % 2])
    pid = workers(node)[1]["pid"]
    os.kill(pid, signal.SIGKILL)
    assert node.end() == 128 + signal.SIGKILL, node.stderr
    summary = f"rank 1 on {re.escape(socket.gethostname())}: Signal 9 \\(SIGKILL\\) received by PID {pid}"
    assert re.search(f"^{summary}$", node.stderr, re.MULTILINE), node.stderr


def test_a_killed_worker_of_a_script_without_tensors(job, run):
    node = job.run("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, program="steps.py", WEFT_PRELOAD="")
    first = workers(node)
    Progress(job, 0).goes_on()
    os.kill(first[run % 2]["pid"], signal.SIGKILL)
    assert [said["restarts"] for said in workers(node)] == [1, 1]
    Progress(job, 1).goes_on()
    job.finish()
    assert node.end() == 0, node.stderr


def test_a_stopped_worker_is_named_and_all_are_started_again(job, run):
    node = reductions(job, "--max-restarts", 1, what="reduce", timeout=TIMEOUT)
    os.kill(workers(node)[1]["pid"], signal.SIGSTOP)
    assert [said["restarts"] for said in workers(node)] == [1, 1]
    assert node.end() == 0, node.stderr
    assert re.search(
        r"DistBackendError: all_reduce.*, rank 0: Timed out waiting \S+ms for rank 1; see what holds it up", node.stderr
    )


def test_without_restarts_the_stopped_worker_is_named(job, run):
    node = reductions(job, "--max-restarts", 0, what="reduce", timeout=TIMEOUT)
    os.kill(workers(node)[1]["pid"], signal.SIGSTOP)
    assert node.end() == 1, node.stderr
    summary = r"^rank 0 on .*DistBackendError: .*ms for rank 1; see what holds it up, or allow more time \(.*:\d+\)$"
    assert re.search(summary, node.stderr, re.MULTILINE), node.stderr


def test_a_worker_that_was_stopped_shortly_goes_on(job, run):
    node = reductions(job, "--max-restarts", 0, what="reduce")
    stopped = workers(node)[1]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: state(stopped) == "T", "the worker does not stop")
    os.kill(stopped, signal.SIGCONT)
    job.finish()
    assert node.end() == 0, node.stderr
