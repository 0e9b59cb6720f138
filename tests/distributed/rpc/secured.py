"""Cases of calls over TLS: `python -m tests.distributed.rpc.secured PROGRAM RANK SIZE ADDRESS FOLDER` is a worker.

The folder has certificates for all; of the program `mixed`, worker 1 has none.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import weft as torch
from tests.distributed.processes import Cases, in_threads
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from weft._comm.transport.tls import Tls
from weft.distributed import rpc
from weft.distributed.rpc._state import current_agent

case = Cases()


def same(x):
    return x


def back(to, x):
    return rpc.rpc_sync(to, same, (x,))


def wrong():
    raise KeyError("k")


def value(reference):
    return reference.to_here()


@case
def a_call_is_enciphered_by_tls():
    assert rpc.rpc_sync("w1", same, (7,)) == 7
    assert isinstance(current_agent().peers.existing(rpc.get_worker_info("w1"))._cipher, Tls)


@case
def a_called_function_calls_back():
    assert rpc.rpc_sync("w1", back, ("w0", "text")) == "text"


@case
def two_thousand_calls_are_under_way():
    assert [one.wait() for one in [rpc.rpc_async("w1", same, (n,)) for n in range(2000)]] == list(range(2000))


@case
def references_go_both_ways():
    assert rpc.remote("w1", same, ([1],)).to_here() == [1]
    assert rpc.rpc_sync("w1", value, (rpc.RRef(5),)) == 5


@case
def an_error_is_told():
    with pytest.raises(KeyError, match="On WorkerInfo"):
        rpc.rpc_sync("w1", wrong)


@case
def tensors_of_all_sizes_come_as_they_were():
    for size in (1 << 10, 1 << 14, (1 << 14) + 1, 1 << 21):
        x = torch.from_numpy(np.arange(size, dtype=np.float32))
        assert (rpc.rpc_sync("w1", same, (x,)).numpy() == x.numpy()).all()


@case
def long_tensors_and_small_calls_of_several_threads_go_at_once():
    x = torch.from_numpy(np.arange(1 << 20, dtype=np.float32))

    def call(thread):
        for _ in range(2):
            assert (rpc.rpc_sync("w1", same, (x,)).numpy() == x.numpy()).all()
            assert rpc.rpc_sync("w1", back, ("w0", thread)) == thread

    in_threads(4, call)


def mixed():
    with pytest.raises(
        RuntimeError,
        match=r"^WorkerInfo\(id=0, name=w0\) cannot reach WorkerInfo\(id=1, name=w1\): this worker has "
        "TLS certificates and it has none; give them to all, or to nobody$",
    ):
        rpc.rpc_sync("w1", same, (1,))


def visited():
    """Tell where this worker listens; for each line that is read, be called by the other one."""
    rpc.rpc_sync("w1", same, (0,))
    print(json.dumps(current_agent().peers.listener.endpoint), flush=True)
    for _ in sys.stdin:
        print(rpc.rpc_sync("w1", back, ("w0", "well")), flush=True)


if __name__ == "__main__":
    program, rank, size, address, folder = sys.argv[1:]
    files = [f"{folder}/{name}.pem" for name in ("certificate", "key", "authority")]
    job.join(rank, size, address, _transports=["uv"], certificates=None if (program, rank) == ("mixed", "1") else files)
    if rank == "0" and program == "cases":
        job.serve_cases(case, int(size))
    elif rank == "0":
        {"mixed": mixed, "visited": visited}[program]()
        nothing_is_left(*["w1"] * (program != "mixed"))
    if program == "mixed" and rank == "1":
        sys.stdin.read()  # worker 0 cannot tell that it is done
    rpc.shutdown(graceful=program != "mixed")
    print(job.PASSED, flush=True)
