"""Every row of the operator table computes on parts what it computes on whole tensors."""

from __future__ import annotations

import os
from math import prod

import pytest

import weft.distributed as dist
from tests.distributed.tensor import rows
from tests.samples import sample_of
from weft.distributed.device_mesh import init_device_mesh
from weft.ops._table import TABLE, TENSOR_KINDS

WHOLE = "WEFT_DTENSOR_SEEDS" in os.environ
SEEDS = int(os.environ.get("WEFT_DTENSOR_SEEDS", "1"))
SHAPES = [(1,), (2,), (4,), (2, 2)] if WHOLE else [(2,)]

INVALID = {
    "cholesky",
    "gather",
    "index_add",
    "index_copy",
    "index_select",
    "multilabel_margin_loss",
    "scatter_add",
    "scatter_src",
}
"""Rows whose sample is for their rule alone: its indices are out of range, or its matrix is not positive."""

SAMPLES = {name: sample_of(op) for name, op in TABLE.items() if any(param.kind in TENSOR_KINDS for param in op.params)}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample and name not in INVALID])
def test_parts_give_what_whole_tensors_give(name, shape):
    def body(rank):
        del rank
        dist.init_process_group("threads")
        mesh = init_device_mesh("cpu", shape)
        for seed in range(SEEDS):
            rows.check(SAMPLES[name], mesh, seed)
        if mesh.ndim == 1:
            for placements in rows.strategies_of(SAMPLES[name], mesh):
                rows.check_with(SAMPLES[name], mesh, placements)

    dist.run_threads(body, nprocs=prod(shape))
