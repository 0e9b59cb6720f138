"""A worker that reduces a tensor with the others: `reductions.py GO WHAT SECONDS`; once started anew, only a few times.

WHAT is what the last rank does meanwhile: `reduce` with the others, or `wait` between two steps.
"""

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import weft
import weft.distributed as dist

go, what, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
dist.init_process_group("shm", timeout=timedelta(seconds=seconds))
rank, size, restarts = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
x = weft.ones(1000)
dist.all_reduce(x)
assert x.sum().item() == 1000 * size
said = {"rank": rank, "size": size, "restarts": restarts, "pid": os.getpid()}
sys.stdout.write(json.dumps(said) + "\n")
last = weft.zeros(1)
while restarts == 0 and not last.item():
    if what == "wait" and rank == size - 1:
        signal.pause()
    last.fill_(float(go.exists()))
    dist.all_reduce(last, dist.ReduceOp.MAX)
dist.destroy_process_group()
