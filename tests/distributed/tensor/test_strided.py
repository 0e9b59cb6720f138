"""Parts of parts: `_StridedShard`, and meshes that are put together."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import Replicate, Shard, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode, visualize_sharding
from weft.distributed.tensor.placement_types import _StridedShard

NAMES = ("dp", "tp")
TWICE = (_StridedShard(0, split_factor=2), Shard(0))


def test_a_later_mesh_dim_splits_first():
    def program(mesh):
        return distribute_tensor(torch.arange(7), mesh, TWICE).to_local().tolist()

    assert on_mesh((2, 2), program, NAMES) == [[0, 1], [4, 5], [2, 3], [6]]


@pytest.mark.parametrize("size", [8, 7, 3, 1])
def test_it_moves_to_all_other_placements_and_back(size):
    def program(mesh):
        x = torch.arange(float(2 * size)).reshape(size, 2)
        strided = distribute_tensor(x, mesh, TWICE)
        for other in ([Shard(0), Shard(0)], [Replicate(), Shard(0)], [Shard(1), Shard(0)], [Replicate(), Shard(1)]):
            moved = strided.redistribute(placements=other)
            assert torch.equal(moved.full_tensor(), x)
            assert torch.equal(moved.to_local(), distribute_tensor(x, mesh, other).to_local())
            assert torch.equal(moved.redistribute(placements=TWICE).to_local(), strided.to_local())

    on_mesh((2, 2), program, NAMES)


def test_operators_on_elements_and_sums_move_nothing():
    def program(mesh):
        x = torch.arange(14.0).reshape(7, 2)
        strided = distribute_tensor(x, mesh, TWICE)
        with CommDebugMode() as mode:
            y = strided * 2 + strided
            total = y.sum()
        assert (y.placements, mode.get_total_counts()) == (TWICE, 0)
        assert torch.equal(y.full_tensor(), 3 * x)
        assert total.item() == 3 * x.sum().item()
        both = strided + distribute_tensor(x, mesh, [Shard(0), Shard(0)])
        assert torch.equal(both.full_tensor(), 2 * x)

    on_mesh((2, 2), program, NAMES)


def test_it_is_shown(capsys):
    def program(mesh):
        x = distribute_tensor(torch.arange(8), mesh, TWICE)
        if not mesh.get_rank():
            visualize_sharding(x)
        return repr(x.placements), str(x.placements[0])

    assert on_mesh((2, 2), program, NAMES)[0] == ("(_StridedShard(dim=0, sf=2), Shard(dim=0))", "_S(0, 2)")
    shown = capsys.readouterr().out
    assert sorted(range(4), key=lambda rank: shown.index(f"cpu:{rank}")) == [0, 2, 1, 3]


def test_meshes_are_put_together():
    def program(mesh):
        assert DeviceMesh._concatenate([mesh["dp"], mesh["tp"]]) == mesh
        turned = DeviceMesh._concatenate([mesh["tp"], mesh["dp"]])
        assert (turned.mesh.tolist(), turned.mesh_dim_names) == ([[0, 2], [1, 3]], ("tp", "dp"))
        assert turned.get_group("dp") is mesh.get_group("dp")
        other = DeviceMesh("cpu", [[3, 2], [1, 0]], mesh_dim_names=("a", "b"))
        with pytest.raises(RuntimeError, match="derived from different device meshs"):
            DeviceMesh._concatenate([mesh["dp"], other["b"]])
        with pytest.raises(RuntimeError, match="overlapping"):
            DeviceMesh._concatenate([mesh["dp"], mesh["dp"]])

    on_mesh((2, 2), program, NAMES)


def test_dims_of_size_one_are_split_by_operators_on_elements():
    def program(mesh):
        x = distribute_tensor(torch.arange(5.0).reshape(1, 5), mesh, [Shard(0)])
        with CommDebugMode() as mode:
            y = (x * 2).detach() + x
            total = y.sum()
        assert (y.placements, mode.get_total_counts()) == ((Shard(0),), 0)
        assert (y.full_tensor().tolist(), total.item()) == ([[0, 3, 6, 9, 12]], 30)

    on_mesh((2,), program)
