"""`DTensor._spec`, and tensors that are made from one."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.fsdp import fully_shard
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def test_what_it_says():
    def program(mesh):
        spec = distribute_tensor(torch.ones(8, 4), mesh, [Replicate(), Shard(0)])._spec
        assert spec.mesh is mesh
        assert spec.device_mesh is mesh
        assert spec.placements == (Replicate(), Shard(0))
        assert spec.tensor_meta == (torch.Size([8, 4]), (4, 1), torch.float32)
        assert (spec.shape, spec.stride, spec.ndim) == ((8, 4), (4, 1), 2)
        assert (spec.num_shards, spec.num_shards_map, spec.dim_map, spec.sums) == (2, [2, 1], [1, -1], [])
        assert spec.is_sharded()
        assert not spec.is_replicated()
        assert str(spec) == "Spec(float32[8, 4](RS(0)))"
        other = DTensor.from_local(torch.ones(2), mesh, [Partial(), Replicate()])._spec
        assert other.sums == [0]
        assert other.num_shards == 1
        assert not other.is_sharded()
        moved = other.shallow_copy_with_tensor_meta(None)
        assert moved != other
        assert hash(other) == hash(other)
        assert moved.placements == other.placements
        with pytest.raises(ValueError, match=r"^tensor_meta is not set$"):
            _ = moved.shape

    on_mesh((2, 2), program)


def test_a_tensor_from_a_spec():
    def program(mesh):
        x = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
        again = DTensor(x.to_local(), x._spec, requires_grad=True)
        assert again.requires_grad
        assert again.is_leaf
        assert again._spec == x._spec
        assert again.full_tensor().equal(x.full_tensor())
        with pytest.raises(TypeError, match="takes a tensor and the `_spec` of a DTensor"):
            DTensor(x.to_local(), [Shard(0)])

    on_mesh((2,), program)


def test_parameters_of_fully_sharded_modules():
    def program(mesh):
        layer = nn.Linear(2, 4)
        fully_shard(layer, mesh=mesh)
        spec = layer.weight._spec
        return spec.placements, tuple(spec.shape), spec.mesh == mesh

    assert on_mesh((2,), program) == [((Shard(0),), (4, 2), True)] * 2


def test_leaves_are_asked_for_first():
    def program(mesh):
        x = torch.ones(4, requires_grad=True) + 1
        with pytest.raises(RuntimeError, match=r"^`distribute_tensor` should be used to distribute leaf tensors!"):
            distribute_tensor(x, mesh, [Shard(0), Shard(0), Shard(0)])

    on_mesh((2,), program)
