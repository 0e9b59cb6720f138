"""Every row of the operator table computes on parts what it computes on whole tensors."""

from __future__ import annotations

import os
from math import prod

import pytest

import weft.distributed as dist
from tests.distributed.tensor import rows, threads
from tests.distributed.tensor.samples import ROWS, WHOLE, samples_of
from weft.distributed.device_mesh import init_device_mesh

MESHES = [(1,), (2,), (4,), (2, 2)] if threads.WHOLE else [(2,)]
NAMES = ROWS[:: 1 if threads.WHOLE else 6]
SEEDS = int(os.environ.get("WEFT_DTENSOR_SEEDS", "1"))


@pytest.mark.soak
def test_rows_that_are_never_split_only_get_fewer():
    def body(rank):
        dist.init_process_group("threads")
        mesh = init_device_mesh("cpu", (2,))
        return None if rank else {name for name in ROWS if not _is_split(name, mesh)}

    assert dist.run_threads(body, nprocs=2)[0] == set(WHOLE)


def _is_split(name, mesh):
    placements = [rows.strategies_of(sample, mesh) for sample in samples_of(name)]
    return any(own[0].is_shard() for found in placements for strategy in found for own in strategy)


@pytest.mark.parametrize("shape", MESHES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_parts_give_what_whole_tensors_give(name, shape):
    def body(rank):
        del rank
        dist.init_process_group("threads")
        mesh = init_device_mesh("cpu", shape)
        for sample in samples_of(name):
            for seed in range(SEEDS):
                rows.check(sample, mesh, seed)
            if mesh.ndim == 1:
                for placements in rows.strategies_of(sample, mesh):
                    rows.check_with(sample, mesh, placements)

    dist.run_threads(body, nprocs=prod(shape))
