"""A job that is looked on: `python -m tests._tools.watched RANK SIZE ADDRESS`.

Worker 0 keeps two values and a function that waits at worker 1 and calls it all the time, until it reads a line.
"""

from __future__ import annotations

import sys
import threading

from tests.distributed.rpc import job
from tests.distributed.rpc.gate import open_gate, wait_for_gate
from tests.distributed.rpc.leaks import nothing_is_left
from weft.distributed import rpc

READY = "ready"


def same(x):
    return x


def _call_until_line():
    refs = [rpc.remote("w1", same, (x,)) for x in range(2)]
    begun = rpc.rpc_async("w1", wait_for_gate)
    assert [ref.to_here() for ref in refs] == [0, 1]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set())).start()
    print(READY, flush=True)
    while not over.is_set():
        rpc.rpc_sync("w1", same, (b"x" * 1000,))
    rpc.rpc_sync("w1", open_gate)
    begun.wait()


if __name__ == "__main__":
    rank, size, address = sys.argv[1:]
    job.join(rank, size, address)
    if rank == "0":
        _call_until_line()
        nothing_is_left()
    try:
        rpc.shutdown()
    except RuntimeError as error:
        print(error, flush=True)
    print(job.PASSED, flush=True)
