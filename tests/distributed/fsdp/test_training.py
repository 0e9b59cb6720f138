"""A language model, with tensor parallelism, fully sharded, and both."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import weft as torch
from tests.distributed.fsdp.models import assert_equal
from tests.distributed.tensor.test_dtensor import Language
from tests.distributed.tensor.threads import WHOLE, on_mesh
from weft import nn
from weft.distributed.fsdp import fully_shard
from weft.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from weft.distributed.tensor import Replicate, Shard
from weft.distributed.tensor.debug import CommDebugMode
from weft.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from weft.distributed.tensor.placement_types import _StridedShard

STEPS = 50 if WHOLE else 3
PLAN = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "up")} | {
    name: RowwiseParallel() for name in ("attention.o", "down")
}


def parallel(model, mesh):
    """Blocks are split over "tp", and everything is sharded over "dp", where the mesh has these dims."""
    for block in model.blocks:
        if "tp" in mesh.mesh_dim_names:
            block.attention.heads //= mesh["tp"].size()
            parallelize_module(block, mesh["tp"], PLAN)
        if "dp" in mesh.mesh_dim_names:
            fully_shard(block, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"]) if "dp" in mesh.mesh_dim_names else model


def trained(model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for tokens in batches:
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("shape", "names"),
    [pytest.param((4,), ("tp",), marks=pytest.mark.soak), ((4,), ("dp",)), ((2, 2), ("dp", "tp"))],
    ids=str,
)
def test_losses_are_those_of_one_process(shape, names):
    def program(mesh):
        torch.manual_seed(0)
        plain = Language(layers=1).double()
        batches = [torch.randint(1, 32, (4, 9)) for _ in range(STEPS)]
        model = parallel(copy.deepcopy(plain), mesh)
        count, at = (mesh["dp"].size(), mesh.get_local_rank("dp")) if "dp" in names else (1, 0)
        losses = trained(model, [tokens.chunk(count)[at] for tokens in batches])
        expected = trained(plain, batches)
        assert_equal(plain, model)
        return losses, expected

    ranks = on_mesh(shape, program, names)
    np.testing.assert_allclose(np.mean([losses for losses, _ in ranks], axis=0), ranks[0][1], rtol=1e-9)


def test_parameters_are_split_twice_and_sent_once():
    def program(mesh):
        model = parallel(Language(), mesh)
        tokens = torch.randint(1, 32, (2, 9))
        with CommDebugMode() as mode:
            model(tokens[:, :-1], tokens[:, 1:].contiguous()).backward()
        counts = mode.get_comm_counts()
        # a block reduces two outputs, and the gradients of four inputs
        assert counts == {"all_gather_into_tensor": 5, "reduce_scatter_tensor": 3, "all_reduce": 12}
        block = model.blocks[0]
        assert block.up.weight.device_mesh.mesh_dim_names == ("dp", "tp")
        assert block.up.weight.placements == (_StridedShard(0, split_factor=2), Shard(0))
        assert block.down.weight.placements == (Shard(0), Shard(1))
        assert block.down.bias.placements == (Shard(0), Replicate())
        assert block.up.weight.grad.placements == block.up.weight.placements
        assert block.n1.weight.placements == (Shard(0),)

    on_mesh((2, 2), program, ("dp", "tp"))


def test_all_ranks_skip_a_step_if_one_has_an_infinite_gradient():
    def program(mesh):
        model = fully_shard(nn.Linear(4, 4), mesh=mesh)
        before = [p.full_tensor().tolist() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = ShardedGradScaler("cpu", init_scale=4.0)
        for weight in (float("inf"), 1.0):  # of the last row, which is one rank's
            scaler.scale((model(torch.ones(2, 4)) * torch.tensor([1.0, 1.0, 1.0, weight])).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            same = before == [p.full_tensor().tolist() for p in model.parameters()]
            assert (same, scaler.get_scale()) == (weight != 1, 2)

    on_mesh((2,), program)
