"""Tensors whose reduction is pending: no operator takes a process's share for the whole."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor._placements import REDUCTIONS
from weft.distributed.tensor.debug import CommDebugMode

NUMPY = {"sum": np.sum, "avg": np.mean, "product": np.prod, "max": np.max, "min": np.min}


def written(x):
    y = x.clone()
    y += 2
    y.t()[0] = 5.0
    y.view(-1)[1:3] *= 2
    y[[0, 1], 1] = 7.0
    y[y > 6] = 1.0
    return y.sub_(x)


OPERATORS = {
    "a number": lambda x: (x + 1) * (2 - x) / -3,
    "over": lambda x: 2 / x + x // 0.3,
    "itself": lambda x: x * x - x.sum(),
    "functions": lambda x: x.abs().sqrt().exp() + x.round() + x.clamp(-0.5, 0.5),
    "comparisons": lambda x: (x > 0.5) | (x == x) & x.isnan(),
    "reductions": lambda x: x.sum() + x.mean() + x.prod() + x.std() + x.median(),
    "extremes": lambda x: x.amax(0) - x.amin(0) + x.argmax(),
    "max of a dim": lambda x: x.max(0)[0],
    "norms": lambda x: x.norm() + torch.linalg.vector_norm(x, 1) + torch.linalg.vector_norm(x, torch.inf),
    "truth": lambda x: (x > -9).all() & (x > 9).any(),
    "products": lambda x: torch.addmm(x @ x.t(), x, x.t()),
    "bilinear": lambda x: nn.functional.linear(x, x) + torch.einsum("ij,kj->ik", x, x),
    "moved": lambda x: torch.cat([x.t().flip(0), x.roll(1, 0).t()]),
    "padded": lambda x: nn.functional.pad(x, (1, 1), value=2.0),
    "chosen": lambda x: torch.where(x > 0, x, 0.0) + x.masked_fill(x > 0, 2.0) + torch.minimum(x, 2 * x),
    "indexed": lambda x: x[0] + x[[1, 0]] + x.gather(0, torch.zeros_like(x, dtype=torch.int64))[:2],
    "a mask": lambda x: x[x > 0],
    "along": lambda x: x.softmax(0) + x.cumsum(0) + x.sort(0)[0] + x.logsumexp(0),
    "normalized": lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
    "a loss": lambda x: nn.functional.mse_loss(x, 2 * x) + nn.functional.cross_entropy(x, x.softmax(1)),
    "types": lambda x: x.int() + x.bfloat16(),
    "lerp": lambda x: torch.lerp(x, 2 * x, 0.3) + torch.addcmul(x, x, x),
    "written": written,
    "out": lambda x: torch.add(x, 1, out=torch.zeros_like(x)),
    "filled": lambda x: x.clone().fill_(3) + torch.zeros_like(x).copy_(x),
    "read": lambda x: torch.tensor([x.sum().item(), float(x[0, 0]), bool(x[0, 0] > 0), *x.tolist()[0]]),
}


@pytest.mark.parametrize("reduce_op", REDUCTIONS)
def test_operators_take_the_reduction(reduce_op):
    shares = np.random.default_rng(0).normal(size=(2, 2, 4))
    whole = torch.from_numpy(NUMPY[reduce_op](shares, 0))

    def program(mesh):
        x = DTensor.from_local(torch.from_numpy(shares[mesh.get_rank()]), mesh, [Partial(reduce_op)])
        for name, operator in OPERATORS.items():
            result, expected = operator(x), operator(whole)
            result = result.full_tensor() if isinstance(result, DTensor) else result
            np.testing.assert_allclose(result.float().numpy(), expected.float().numpy(), 1e-5, 1e-6, err_msg=name)
        assert f"{whole[0, 0].item():.4f}" in repr(x)
        source = distribute_tensor(whole, mesh)
        for write, value in (("add_", 1), ("fill_", 3), ("copy_", source)):
            target = DTensor.from_local(torch.from_numpy(shares[mesh.get_rank()].copy()), mesh, [Partial(reduce_op)])
            expected = getattr(whole.clone(), write)(whole if value is source else value)
            getattr(target, write)(value)
            assert target.placements == (Partial(reduce_op),)
            np.testing.assert_allclose(target.full_tensor().numpy(), expected.numpy(), 1e-9, 1e-12)

    on_mesh((2,), program)


def test_split_values_are_written_to_pending_reductions():
    def program(mesh):
        values = torch.arange(10.0).view(5, 2)
        for reduce_op, placement in product(REDUCTIONS, [Shard(0), Shard(1), Partial("sum"), Replicate()]):
            target = DTensor.from_local(torch.ones(5, 2), mesh, [Partial(reduce_op)])
            source = distribute_tensor(values, mesh)
            source = DTensor.from_local(values / 2, mesh, [placement]) if placement.is_partial() else source
            target.copy_(source.redistribute(placements=[placement]))
            assert target.placements == (Partial(reduce_op),)
            assert torch.equal(target.full_tensor(), values)

    on_mesh((2,), program)


def test_sums_are_added_up_before_parts_are_joined():
    def program(mesh):
        part = torch.ones(2, 8)
        x = DTensor.from_local(part, mesh, [Shard(0), Partial()])
        with CommDebugMode() as mode:
            whole = x.full_tensor()
        assert torch.equal(whole, torch.full((4, 8), 2.0))
        return mode.get_bytes(), mode.get_comm_counts()

    of_parts = 2 * part_bytes(2, 8)
    counts = {"all_reduce": 1, "all_gather_into_tensor": 1}
    assert on_mesh((2, 2), program) == [(of_parts, counts)] * 4


def test_reductions_over_several_dims_of_a_mesh_are_one():
    """Of values, and of gradients of what all ranks use; on part of the job there is no group for that at first."""

    def program(mesh):
        x = DTensor.from_local(torch.ones(3), mesh, [Partial()] * mesh.ndim)
        weight = distribute_tensor(torch.ones(3), mesh).requires_grad_()
        data = distribute_tensor(torch.ones(8, 3), mesh, [Shard(0)] * mesh.ndim)
        with CommDebugMode() as mode:
            assert x.full_tensor().tolist() == [mesh.size()] * 3
            (data * weight).sum().full_tensor().backward()
        assert weight.grad.full_tensor().tolist() == [8.0] * 3
        return mode.get_comm_counts()["all_reduce"]

    assert on_mesh((2, 2), program) == [3] * 4
    assert on_mesh((2, 1, 2), program) == [3] * 4

    def with_and_without_a_flat_mesh(job):
        mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        if job.get_rank() >= mesh.size():
            return mesh._flatten().coordinate
        first = program(mesh)
        mesh._flatten()
        return first, program(mesh)

    assert on_mesh((5,), with_and_without_a_flat_mesh) == [*[(6, 3)] * 4, None]


def part_bytes(*shape):
    return int(np.prod(shape)) * 4
