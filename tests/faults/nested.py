"""A worker of a job that joins and leaves many times: `python -m tests.faults.nested RANK SIZE ROUNDS FOLDER`.

In each round the workers make nested references of each other, and come to `shutdown()` at different times, while these
are still being made. What a worker has to say of wrong values or errors, it prints.
"""

from __future__ import annotations

import sys
import time
from random import Random

from weft.distributed import rpc

_DEPTH, _CHAINS = 3, 2
_LONGEST = 0.004  # seconds that a function may sleep


def chain(depth, size, seed):
    """`depth`, by way of references that other workers make, some of which are handed on."""
    random = Random(seed)
    time.sleep(random.random() * _LONGEST)
    if not depth:
        return 0
    further = rpc.remote(f"w{random.randrange(size)}", chain, args=(depth - 1, size, seed + 1))
    if random.random() < 0.5:
        return rpc.rpc_sync(f"w{random.randrange(size)}", value, args=(further,)) + 1
    return further.to_here() + 1


def value(reference):
    """What a reference refers to."""
    return reference.to_here()


def take_part(rank, size, number, folder):
    """One round."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/{number}", rpc_timeout=60)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    random = Random(number * size + rank)
    references = [
        rpc.remote(f"w{(rank + 1) % size}", chain, args=(_DEPTH, size, random.randrange(1 << 30)))
        for _ in range(_CHAINS)
    ]
    if random.random() < 0.5:
        references.clear()
    time.sleep(random.random() * _LONGEST)
    if random.random() < 0.3:
        for reference in references:
            assert reference.to_here() == _DEPTH
    rpc.shutdown(timeout=30)


def main():
    rank, size, rounds, folder = *map(int, sys.argv[1:4]), sys.argv[4]
    for number in range(rounds):
        take_part(rank, size, number, folder)
    print("done", flush=True)


if __name__ == "__main__":
    main()
