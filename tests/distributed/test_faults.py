"""A rank that is killed, stopped, or leaves: the others are told in time, and nothing is left behind."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import weft.distributed as dist
from tests.distributed.processes import PATIENCE, ended, mpiexec, needs_mpi, start

PROGRAM = """
import os, sys
from datetime import timedelta
import weft, weft.distributed as dist
backend, seconds, *place = sys.argv[1:]
rank, size, address = (int(place[0]), int(place[1]), place[2]) if place else (-1, -1, None)
dist.init_process_group(backend, address, timedelta(seconds=60), size, rank)
rank = dist.get_rank()
x = weft.ones(1000)
dist.all_reduce(x)
dist.distributed_c10d._set_pg_timeout(timedelta(seconds=float(seconds)))
sys.stdout.write(f"joined as {rank} {os.getpid()}\\n")  # a line at once, also where Python does not buffer
sys.stdout.flush()
try:
    while True:
        {operation}
except RuntimeError as error:
    print(error, flush=True)
"""
OPERATIONS = {
    "all_reduce": "dist.all_reduce(x)",
    "async": "dist.all_reduce(x, async_op=True).wait()",
    "message": "dist.recv(x, 1) if rank == 0 else sys.stdin.read()",
    "first message": "dist.recv(x, 0) if rank == 1 else sys.stdin.read()",
}


def joined(backend, operation, tmp_path, size=2, seconds=60.0):
    """Ranks that have all joined."""
    text = PROGRAM.replace("{operation}", OPERATIONS[operation])
    place = [str(size), f"file://{tmp_path}/store"]
    commands = [[sys.executable, "-c", text, backend, str(seconds), str(rank), *place] for rank in range(size)]
    found = [start(command) for command in commands]
    for process in found:
        says(process, "joined")
    return found


def says(process, word):
    """The rest of the next line of output that begins with a word."""
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word)
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("operation", ["all_reduce", "async", "message"])
def test_a_killed_rank_is_named_at_once(operation, tmp_path):
    first, second = joined("shm", operation, tmp_path)
    second.kill()
    (code, output, _), _ = ended([first, second])  # and not after the group's minute
    assert f"rank 1 has ended (process {second.pid})" in output
    assert code == 0


@pytest.mark.parametrize(
    ("operation", "victim"),
    [
        ("all_reduce", 1),
        ("all_reduce", 0),
        pytest.param("message", 1, marks=pytest.mark.soak),
        pytest.param("first message", 0, marks=pytest.mark.soak),
    ],
)
def test_a_killed_rank_ends_no_other_process_of_xla(operation, victim, tmp_path):
    ranks = joined("xla", operation, tmp_path)
    ranks[victim].kill()
    code, output, errors = ended(ranks)[1 - victim]
    assert f"rank {victim} has ended (its connection was closed" in output
    if victim:
        assert (code, errors) == (0, "")
    else:  # it was the coordinator, without which XLA does not end as it should
        assert (code, errors) == (1, "weft: the process of rank 0 has ended before this one; ending with status 1\n")


AFTER = """
    dist.shrink_group([1])
    x = weft.full((2,), rank + 1.0)
    dist.all_reduce(x)
    print("left:", dist.get_rank(), dist.get_world_size(), x.tolist(), flush=True)
"""


def test_the_ranks_that_are_left_go_on_without_a_killed_one(tmp_path):
    text = PROGRAM.replace("{operation}", "dist.all_reduce(x)") + AFTER
    place = ["3", f"file://{tmp_path}/store"]
    ranks = [start([sys.executable, "-c", text, "shm", "60", str(rank), *place]) for rank in range(3)]
    for process in ranks:
        says(process, "joined")
    ranks[1].kill()
    (_, first, errors), _, (_, third, _) = ended(ranks)
    assert f"rank 1 has ended (process {ranks[1].pid})" in first
    assert "left: 0 2 [4.0, 4.0]\n" in first, errors
    assert "left: 1 2 [4.0, 4.0]\n" in third


@pytest.mark.parametrize("backend", ["shm", pytest.param("xla", marks=pytest.mark.soak)])  # XLA leaves after a minute
def test_a_stopped_rank_is_named_at_the_deadline(backend, tmp_path):
    first, second = joined(backend, "all_reduce", tmp_path, seconds=1.0)
    os.kill(second.pid, signal.SIGSTOP)
    try:
        ((code, output, errors),) = ended([first])
    finally:
        second.kill()
        ended([second])
    assert "ms for rank 1; see what holds it up" in output
    if code:  # it was stopped in the middle of an exchange, which XLA cannot leave
        assert (backend, code) == ("xla", 1), errors
        assert "weft: XLA still waits for the ranks that have not come; ending with status 1" in errors


@pytest.fixture
def no_segments():
    """MPICH leaves its memory behind when it is not finalised; what no process has is removed."""
    yield
    used = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process has ended
            used += maps.read_text()
    for segment in Path("/dev/shm").glob("mpich_shm_*"):
        if segment.name not in used:
            segment.unlink(missing_ok=True)


@needs_mpi
@pytest.mark.usefixtures("no_segments")
def test_a_stopped_rank_of_mpi_is_named_at_the_deadline():
    job = start(mpiexec(2, "-c", PROGRAM.replace("{operation}", OPERATIONS["all_reduce"]), "mpi", "1"))
    pids = dict(map(int, says(job, "joined as").split()) for _ in range(2))
    os.kill(pids[1], signal.SIGSTOP)
    try:
        assert "rank 1; see what holds it up" in says(job, "all_reduce(sum) of 1000 float32, rank 0: Timed out waiting")
    finally:
        os.kill(pids[1], signal.SIGKILL)
        ended([job])
    assert all_gone(pids.values())


@needs_mpi
@pytest.mark.usefixtures("no_segments")
def test_a_killed_rank_of_mpi_ends_the_job():
    job = start(mpiexec(2, "-c", PROGRAM.replace("{operation}", OPERATIONS["all_reduce"]), "mpi", "60"))
    pids = dict(map(int, says(job, "joined as").split()) for _ in range(2))
    os.kill(pids[1], signal.SIGKILL)
    ((code, output, _),) = ended([job])
    assert code != 0
    assert "Killed (signal 9)" in output
    assert all_gone(pids.values())


def all_gone(pids):
    """Whether processes that are ending have ended."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([process], [], [], PATIENCE)[0]:
                return False
        finally:
            os.close(process)
    return True


@needs_mpi
def test_other_ranks_than_those_of_mpi_are_refused():
    text = "import weft.distributed as dist; dist.init_process_group('mpi', rank=0, world_size=3)"
    ((code, _, errors),) = ended([start([sys.executable, "-c", text])])
    assert code == 1
    assert "0 of 1 for MPI, but rank 0 of 3 processes is expected; start the job by `mpiexec -n 3 python SC" in errors


@needs_mpi
def test_a_script_for_mpi_under_the_launcher_is_told_how_to_start():
    text = "import weft.distributed as dist; dist.init_process_group('mpi')"
    flags = ["--nproc-per-node", "2", "--no-python", sys.executable, "-c", text]
    ((code, _, errors),) = ended([start([sys.executable, "-m", "weft.distributed.run", *flags])])
    assert code == 1
    assert "rank 0 of 1 for MPI, but 2 processes are expected; start the job by `mpiexec -n 2 python" in errors
    assert "SCRIPT` instead of `weft run`, and leave rank and world_size to MPI" in errors


def test_rank_0_of_xla_may_be_done_before_the_others(tmp_path):
    text = (
        "import sys, weft, weft.distributed as dist\n"
        "rank = int(sys.argv[2])\n"
        "dist.init_process_group('xla', sys.argv[1], rank=rank, world_size=2)\n"
        "dist.destroy_process_group()\n"
        "print('left', rank, flush=True)\n"
        "if rank: print(sys.stdin.readline(), weft.ones(2).sum().item(), flush=True)"
    )
    commands = [[sys.executable, "-c", text, f"file://{tmp_path}/store", str(rank)] for rank in range(2)]
    ranks = [start(command) for command in commands]
    for rank in ranks:
        says(rank, "left")
    ranks[1].stdin.write("go on\n")
    ranks[1].stdin.flush()
    (first, _, _), (second, output, errors) = ended(ranks)
    assert (first, second, output) == (0, 0, "go on\n 2.0\n"), errors


def test_without_its_extra_mpi_says_what_to_install():
    text = "import sys; sys.modules['mpi4py'] = None; import weft.distributed as d; d.init_process_group('mpi')"
    ((code, _, errors),) = ended([start([sys.executable, "-c", text])])
    assert code == 1
    assert "ModuleNotFoundError: backend mpi needs the package mpi4py and an MPI library; install both with: " in errors


@pytest.mark.compiled
def test_xla_must_be_joined_before_anything_is_computed(tmp_path):
    text = (
        "import sys, weft, weft.distributed as dist\n"
        "weft.ones(2).tolist()\n"
        "dist.init_process_group('xla', sys.argv[1], rank=0, world_size=1)"
    )
    ((code, _, errors),) = ended([start([sys.executable, "-c", text, f"file://{tmp_path}/store"])])
    assert code == 1
    assert "init_process_group('xla') must come before anything is computed in this process" in errors


def test_ranks_of_xla_are_processes():
    with pytest.raises(RuntimeError, match="ranks of backend xla are processes; use backend 'threads' for threads"):
        dist.run_threads(lambda rank: dist.init_process_group("xla"))


def test_nccl_is_for_accelerators(tmp_path):
    text = "import sys, weft.distributed as d; d.init_process_group('nccl', sys.argv[1], rank=0, world_size=1)"
    ((code, _, errors),) = ended([start([sys.executable, "-c", text, f"file://{tmp_path}/store"])])
    assert code == 1
    assert "backend nccl is for accelerators, and this process has none; use 'xla', or 'gloo' on CPUs" in errors
