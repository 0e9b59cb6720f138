"""Programs of several ranks as threads, with a mesh."""

from __future__ import annotations

import os
from math import prod

import weft.distributed as dist
from weft.distributed.device_mesh import init_device_mesh

WHOLE = "WEFT_DTENSOR_SEEDS" in os.environ
"""Whether everything is tried, as by `make test-dtensor`, and not a part of it."""


def on_mesh(shape, program, names=None):
    """The results of `program(mesh)` on all ranks of a new job, by rank."""

    def body(rank):
        del rank
        dist.init_process_group("threads")
        return program(init_device_mesh("cpu", shape, mesh_dim_names=names))

    return dist.run_threads(body, nprocs=prod(shape))
