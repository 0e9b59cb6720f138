"""Programs about keys, limits and doubles."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.distributed.processes import PATIENCE
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from weft._comm.transport import pipe
from weft.distributed import rpc

_LIMIT = 1 << 20


def same(x):
    return x


def long(size):
    return "x" * size


def other_keys():
    """A worker has another key than the one that it joined with."""
    os.environ["WEFT_JOB_KEY"] = "the key of another job"
    with pytest.raises(
        RuntimeError,
        match=r"^WorkerInfo\(id=0, name=w0\) cannot reach WorkerInfo\(id=1, name=w1\): a process of this "
        r"host has another job key; give all processes of a job the same WEFT_JOB_KEY \(or WEFT_JOB_KEY_FILE\), and "
        r"all nodes the same --rdzv-id$",
    ):
        rpc.rpc_sync("w1", same, (1,), timeout=20)


def long_answer():
    """An answer over the limit, which is lower here, is told as an error, and calls go on."""
    with pytest.raises(ValueError, match=rf"a message of \d+ bytes is longer than the {_LIMIT} that one may have"):
        rpc.rpc_sync("w1", long, (_LIMIT,), timeout=20)
    with pytest.raises(ValueError, match=rf"^a message of \d+ bytes is longer than the {_LIMIT} that one may have$"):
        rpc.rpc_sync("w1", same, ("x" * _LIMIT,), timeout=20)
    assert rpc.rpc_sync("w1", same, (1,)) == 1


def double():
    """A process that would be another worker 0 is refused, and does no harm."""
    command = [sys.executable, "-m", "tests.distributed.rpc.guarded", "second", "0", "2", sys.argv[4]]
    subprocess.run(command, check=True, timeout=PATIENCE)
    assert rpc.rpc_sync("w1", same, (1,)) == 1


def second(address):
    with pytest.raises(RuntimeError, match=r"w0.* is not unique"):
        job.join("0", "2", address)


if __name__ == "__main__":
    program, rank, _, address = sys.argv[1:]
    if program == "second":
        second(address)
        sys.exit()
    if program == "long_answer":
        pipe.MOST_BYTES = _LIMIT
    job.join(rank, 2, address)
    if rank == "0":
        {one.__name__: one for one in (other_keys, long_answer, double)}[program]()
        nothing_is_left(*["w1"] * (program != "other_keys"))
    if program == "other_keys" and rank == "1":
        sys.stdin.read()  # worker 0 cannot tell that it is done
    rpc.shutdown(graceful=program != "other_keys")
    print(job.PASSED, flush=True)
