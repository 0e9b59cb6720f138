"""How long it takes to plan operators on distributed tensors, by the size of the mesh."""

from __future__ import annotations

import tempfile
import time
from itertools import count

import numpy as np

from bench.measure import REPEATS, Side

_SIZES = count(1)


def _first_calls(devices: int) -> float:
    """Seconds of 60 operators on tensors of new sizes over a mesh of so many devices, of which this process is one."""
    import weft
    from weft.distributed.device_mesh import DeviceMesh
    from weft.distributed.tensor import DTensor, Replicate, Shard

    mesh = DeviceMesh.from_group(weft.distributed.group.WORLD, "cpu", np.arange(devices))
    sizes = [8 * next(_SIZES) for _ in range(10)]
    tensors = [
        (
            DTensor.from_local(weft.ones(2, n), mesh, [Shard(0)], shape=(2 * devices, n)),
            DTensor.from_local(weft.ones(n, n), mesh, [Replicate()]),
        )
        for n in sizes
    ]
    start = time.perf_counter()
    for x, w in tensors:
        y = ((x @ w).relu() + x).softmax(-1)
        y.sum(0, keepdim=True).mul(2)
    return (time.perf_counter() - start) / (6 * len(sizes))


def planning() -> list[tuple[str, Side, Side, float]]:
    """A row that compares a mesh of 100,000 devices with one of 8."""
    import weft.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        _first_calls(8)
        rounds = [(_first_calls(100_000), _first_calls(8)) for _ in range(REPEATS)]
        dist.destroy_process_group()
    large, small = zip(*rounds, strict=True)
    text = "DTensor, first call of an operator on a mesh of 100,000 devices, simulated"
    return [(text, Side("weft", large), Side("weft, mesh of 8", small), 0.9)]
