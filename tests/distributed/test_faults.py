"""A rank that is killed, stopped, or leaves: the others are told in time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from datetime import timedelta
import weft, weft.distributed as dist
rank, size, address, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
dist.init_process_group("shm", address, timedelta(seconds=seconds), size, rank)
x = weft.ones(1000)
dist.all_reduce(x)
print("joined", flush=True)
try:
    while True:
        {operation}
except RuntimeError as error:
    print(error)
"""
OPERATIONS = {
    "all_reduce": "dist.all_reduce(x)",
    "async": "dist.all_reduce(x, async_op=True).wait()",
    "message": "dist.recv(x, 1) if rank == 0 else sys.stdin.read()",
}


def start(operation, tmp_path, size=2, seconds=60.0):
    text = PROGRAM.format(operation=OPERATIONS[operation])
    command = [sys.executable, "-c", text]
    found = [
        subprocess.Popen(
            [*command, str(rank), str(size), f"file://{tmp_path}/store", str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    for process in found:
        assert process.stdout.readline() == "joined\n"
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_killed_rank_is_named_at_once(operation, tmp_path):
    first, second = start(operation, tmp_path)
    second.kill()
    output, _ = first.communicate(timeout=30)  # and not the group's minute
    second.communicate()
    assert f"rank 1 has ended (process {second.pid})" in output
    assert first.returncode == 0


def test_a_stopped_rank_is_named_at_the_deadline(tmp_path):
    first, second = start("all_reduce", tmp_path, seconds=1.0)
    os.kill(second.pid, signal.SIGSTOP)
    output, _ = first.communicate(timeout=30)
    second.kill()
    second.communicate()
    assert "in vain for rank 1" in output
