"""Two workers for tests of safety: `python -m tests.distributed.rpc.attacked RANK ADDRESS`.

Worker 0 tells where it listens, and figures of its process for each line that it reads. Worker 1 goes on calling it,
checks what comes, and tells for each line how many calls it has made. Both leave when there are no more lines.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

import weft as torch
from tests.distributed.rpc import job
from weft.distributed import rpc
from weft.distributed.rpc._state import current_agent

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LONG = torch.from_numpy(np.arange(1 << 15, dtype=np.float32))


def same(x):
    return x


def _files():
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was for the list itself
            yield os.readlink(f"/proc/self/fd/{number}")


def figures():
    gc.collect()
    told = rpc.debug_info()
    return {
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE,
        "sockets": sum(one.startswith("socket:") for one in _files()),
        "threads": threading.active_count() - told["num_threads"],  # the latter are started as they are needed
        "connections": told["num_connections"],
    }


def be_attacked():
    print(json.dumps(current_agent().peers.listener.endpoint), flush=True)
    for _ in sys.stdin:
        print(json.dumps(figures()), flush=True)


def one_round():
    """Calls of all kinds; returns how many."""
    assert rpc.rpc_sync("w0", same, (7,)) == 7
    assert rpc.rpc_sync("w0", same, (torch.ones(3),)).tolist() == [1, 1, 1]
    assert rpc.remote("w0", same, ("text",)).to_here() == "text"
    long = rpc.rpc_sync("w0", same, (_LONG,))
    assert (long.numpy() == _LONG.numpy()).all()
    return 5


def go_on():
    made = 0
    while True:
        made += one_round()
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(made, flush=True)


if __name__ == "__main__":
    rank, address = sys.argv[1:]
    options = rpc.TensorPipeRpcBackendOptions(init_method=address)
    logging.getLogger("weft.distributed.rpc").setLevel(logging.CRITICAL)  # functions fail on purpose
    rpc.init_rpc(f"w{rank}", rank=int(rank), rpc_backend_options=options)  # others may come as they like
    be_attacked() if rank == "0" else go_on()
    rpc.shutdown()
    print(job.PASSED, flush=True)
