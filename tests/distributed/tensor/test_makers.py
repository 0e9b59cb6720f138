"""New distributed tensors that are made like others."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.errors import DistError


@pytest.mark.parametrize(
    ("size", "stride", "placement", "local", "local_stride"),
    [
        ((8, 6), (6, 1), Shard(0), (4, 6), (6, 1)),
        ((8, 6), (1, 8), Shard(0), (4, 6), (1, 4)),
        ((8, 6), (1, 8), Shard(1), (8, 3), (1, 8)),
        ((4, 6), (6, 1), Shard(0), (4, 6), (6, 1)),  # another size is whole on all
        ((4, 6), (1, 4), Shard(0), (4, 6), (1, 4)),
        ((8, 6), (1, 8), Replicate(), (8, 6), (1, 8)),
        ((), (), Shard(0), (), ()),
    ],
)
def test_new_empty_strided_is_distributed(size, stride, placement, local, local_stride):
    def program(mesh):
        x = distribute_tensor(torch.arange(48.0).reshape(8, 6), mesh, [placement])
        new = x.new_empty_strided(size, stride, dtype=torch.float64, requires_grad=True)
        new.sum().backward()
        assert isinstance(new, DTensor)
        assert isinstance(new.grad, DTensor)
        assert new.is_leaf
        assert new.grad.full_tensor().tolist() == torch.ones(size).tolist()
        part = new.to_local()
        expected = placement if tuple(size) == (8, 6) else Replicate()
        assert new.placements == (expected,)
        assert new.dtype is torch.float64
        return tuple(new.shape), new.stride(), tuple(part.shape), part.stride()

    assert on_mesh((2,), program) == [(size, stride, local, local_stride)] * 2


def test_new_empty_strided_needs_a_stride_for_each_dim():
    def program(mesh):
        x = torch.ones(2)
        for one in (x, distribute_tensor(x, mesh)):
            with pytest.raises(
                RuntimeError, match=r"^dimensionality of sizes \(2\) must match dimensionality of strides"
            ):
                one.new_empty_strided((2, 2), (1,))

    on_mesh((2,), program)


def test_a_tensor_on_the_meta_device_stays_distributed():
    def program(mesh):
        x = distribute_tensor(torch.ones(8, 3), mesh, [Shard(0)]).to("meta")
        assert isinstance(x, DTensor)
        assert x.is_meta
        return x.placements, tuple(x.shape), tuple(x.to_local().shape)

    assert on_mesh((2,), program) == [((Shard(0),), (8, 3), (4, 3))] * 2


@pytest.mark.parametrize("placement", [Shard(0), Partial(), Replicate()], ids=str)
def test_as_strided_gives_only_the_same_places(placement):
    def program(mesh):
        x = DTensor.from_local(torch.ones(4, 2), mesh, [placement])
        same = x.as_strided(x.shape, x.stride())
        same.mul_(2)  # a view
        assert same.placements == x.placements
        assert same.full_tensor().equal(x.full_tensor())
        with pytest.raises(DistError, match=r"^as_strided not supported with DTensor: .* take x.to_local\(\) or"):
            x.as_strided((2,), (1,))

    on_mesh((2,), program)
