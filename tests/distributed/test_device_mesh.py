"""Meshes of devices."""

from __future__ import annotations

import re

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.errors import DistError


def test_a_rank_has_a_place_and_a_group_along_each_dim():
    def program(mesh):
        assert (mesh.ndim, mesh.shape, mesh.size(), mesh.size(1), mesh.size("tp")) == (2, (2, 3), 6, 3, 3)
        assert mesh.mesh.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert mesh.get_all_groups() == [mesh.get_group("dp"), mesh.get_group("tp")]
        total = torch.tensor([mesh.get_rank()])
        dist.all_reduce(total, group=mesh.get_group("tp"))
        return mesh.get_coordinate(), mesh.get_local_rank("tp"), mesh.get_group(0).ranks, total.item()

    results = on_mesh((2, 3), program, ("dp", "tp"))
    assert results[0] == ((0, 0), 0, (0, 3), 3)
    assert results[5] == ((1, 2), 2, (2, 5), 12)


def test_parts_of_a_mesh_are_meshes():
    def program(mesh):
        part = mesh["tp"]
        assert mesh["dp", "tp"] is mesh
        assert part.get_group() is mesh.get_group("tp")
        flat = mesh._flatten("all")
        assert mesh["all"] is flat
        assert flat.shape == (4,)
        assert DeviceMesh.from_group(mesh.get_group("dp"), "cpu").shape == (2,)
        with pytest.raises(
            KeyError, match=r"Invalid mesh_dim_names \('pp',\) specified\. Valid mesh_dim_names are \['dp'"
        ):
            mesh["pp"]
        with pytest.raises(KeyError, match="Mesh dim indices should be in ascending order"):
            mesh["tp", "dp"]
        with pytest.raises(KeyError, match=r"no mesh dim is called 'pp'; the mesh has the dims \['dp', 'tp'\]"):
            mesh.get_group("pp")
        return part.mesh.tolist(), part.mesh_dim_names, part.get_local_rank()

    assert on_mesh((2, 2), program, ("dp", "tp")) == [
        ([0, 1], ("tp",), 0),
        ([0, 1], ("tp",), 1),
        ([2, 3], ("tp",), 0),
        ([2, 3], ("tp",), 1),
    ]


def ranks(group):
    return list(group.ranks)


def test_dims_of_a_part_are_flattened_by_all_ranks():
    def program(mesh):
        flat = mesh["dp", "tp"]._flatten()  # its ranks are no neighbours
        assert mesh["dp", "tp"]._flatten("dp_tp") is flat is mesh["dp_tp"]
        assert mesh.get_group("dp_tp") is flat.get_group()
        assert mesh.get_local_rank("dp_tp") == flat.get_local_rank()
        assert mesh["dp"]._flatten("dp") == mesh["dp"]
        assert mesh._flatten("all").mesh.tolist() == [*range(8)]
        for wrong, text in (("cp", "already exists for submesh"), ("dp_tp", "has been created before")):
            with pytest.raises(ValueError, match=text):
                mesh["dp", "cp"]._flatten(wrong)
        with pytest.raises(RuntimeError, match="overlapping"):
            mesh["dp", "dp_tp"]
        with pytest.raises(KeyError, match=r"Valid mesh_dim_names are \['dp', 'tp'\]"):
            mesh["dp", "tp"]["dp_tp"]
        total = torch.ones(1)
        dist.all_reduce(total, group=flat.get_group())
        return ranks(flat.get_group()), flat.mesh.tolist(), total.item()

    for rank, result in enumerate(on_mesh((2, 2, 2), program, ("dp", "cp", "tp"))):
        row = [0, 1, 4, 5] if rank % 4 < 2 else [2, 3, 6, 7]
        assert result == (row, row, 4)


def test_a_dim_is_divided():
    def program(mesh):
        parts = mesh._unflatten("dp", (2, 2), ("replicate", "shard"))
        assert (parts.shape, parts.mesh_dim_names) == ((2, 2, 2), ("replicate", "shard", "tp"))
        assert parts.get_group("tp") is mesh.get_group("tp")
        for wrong, sizes, names, text in (
            (0, (3, 2), ("a", "b"), "These must be equal for unflatten"),
            ("pp", (2, 2), ("a", "b"), "is not one of the dims"),
            (2, (2, 2), ("a", "b"), "is not one of the dims"),
        ):
            with pytest.raises(ValueError, match=text):
                mesh._unflatten(wrong, sizes, names)
        with pytest.raises(RuntimeError, match="must have same length as mesh_sizes"):
            mesh._unflatten(0, (2, 2), ("a",))
        return [ranks(parts.get_group(dim)) for dim in range(2)], parts["replicate", "tp"].mesh.tolist()

    results = on_mesh((4, 2), program, ("dp", "tp"))
    assert results[0] == ([[0, 4], [0, 2]], [[0, 1], [4, 5]])
    assert results[7] == ([[3, 7], [5, 7]], [[2, 3], [6, 7]])


def test_meshes_over_existing_groups():
    def program(mesh):
        world, groups = dist.group.WORLD, mesh.get_all_groups()
        assert DeviceMesh.from_group(groups, "cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))["b"].size() == 2
        for given, text in (
            ((world, "cpu", [0, 1]), r"Invalid mesh \[0, 1\] for ProcessGroup with ranks \[0, 1, 2, 3\]"),
            (([], "cpu"), "at least one ProcessGroup"),
            ((groups, "cpu"), "Must pass mesh if"),
            ((groups, "cpu", [[0, 1], [2, 3]]), "Must pass mesh_dim_names"),
        ):
            with pytest.raises(ValueError, match=text):
                DeviceMesh.from_group(*given)

    on_mesh((2, 2), program)


def test_a_rank_may_have_no_place():
    def body(rank):
        dist.init_process_group("threads")
        mesh = init_device_mesh("cpu", (2,))
        if rank < 2:
            return mesh.get_local_rank()
        with pytest.raises(
            DistError, match=r"^rank 2 has no place in DeviceMesh\('cpu', \[0, 1\]\), so it has no group"
        ):
            mesh.get_group()
        return mesh.get_coordinate()

    assert dist.run_threads(body, nprocs=3) == [0, 1, None]


def test_bad_meshes():
    def program(mesh):
        with pytest.raises(RuntimeError, match="Mesh should not be bigger than default world size 2, but found 4"):
            init_device_mesh("cpu", (2, 2))
        with pytest.raises(RuntimeError, match="mesh_shape and mesh_dim_names should have same length"):
            init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b"))
        with pytest.raises(RuntimeError, match="Each mesh_dim_name must be unique"):
            init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "a"))
        with pytest.raises(RuntimeError, match=re.escape("Device type with index is not supported but got cpu:0.")):
            init_device_mesh("cpu:0", (2,))
        with pytest.raises(RuntimeError, match="this machine has no tpu device that jax can use"):
            init_device_mesh("tpu", (2,))
        with pytest.raises(ValueError, match=r"the ranks of a mesh are different ones below 2, but got \[0, 0\]"):
            DeviceMesh("cpu", [0, 0])
        with pytest.raises(ValueError, match="a mesh is an array of ranks"):
            DeviceMesh("cpu", 1)
        with pytest.raises(DistError, match="Cannot slice a DeviceMesh without mesh_dim_names!"):
            mesh["dp"]
        with pytest.raises(IndexError, match="mesh dim 1 is out of range for a mesh with 1 dims"):
            mesh.size(1)

    on_mesh((2,), program)


def test_without_a_job_there_is_no_mesh():
    with pytest.raises(ValueError, match="init_process_group"):
        DeviceMesh("cpu", [0])
