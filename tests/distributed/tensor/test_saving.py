"""Distributed tensors in files and pickles: the part of the process that writes them, and the sharding."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from weft.distributed.tensor._placements import _StridedShard, placement_from


def through_file(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


PLACEMENTS = [
    [Shard(0), Shard(1)],
    [Shard(0), Shard(0)],
    [_StridedShard(0, split_factor=2), Shard(0)],
    [Replicate(), Shard(1)],
]


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("placements", PLACEMENTS, ids=str)
def test_a_tensor_comes_back(weights_only, placements):
    def program(mesh):
        whole = torch.arange(21.0).reshape(7, 3)
        x = distribute_tensor(whole, mesh, placements).requires_grad_()
        both = {"a": x, "b": [x.detach(), torch.ones(2)]}
        loaded = through_file(both, weights_only=weights_only)
        for one in (loaded["a"], loaded["b"][0]):
            assert type(one) is DTensor
            assert one.device_mesh is mesh
            assert one.placements == tuple(placements)
            assert one.full_tensor().equal(whole)
        assert loaded["a"].requires_grad
        assert not loaded["b"][0].requires_grad
        assert type(loaded["b"][1]) is torch.Tensor

    on_mesh((2, 2), program, ("dp", "tp"))


def test_pending_sums_stay_pending():
    def program(mesh):
        x = DTensor.from_local(torch.full((2,), float(mesh.get_rank())), mesh, [Partial()])
        for one in (through_file(x), pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            assert one.placements == (Partial(),)
            assert one.to_local().equal(x.to_local())
            assert one.full_tensor().tolist() == [1, 1]

    on_mesh((2,), program)


def test_a_part_of_a_mesh_is_found_again():
    def program(mesh):
        x = distribute_tensor(torch.arange(8.0), mesh["tp"], [Shard(0)])
        for one in (through_file(x), pickle.loads(pickle.dumps(x))):
            assert one.device_mesh == mesh["tp"]
            assert one.full_tensor().equal(x.full_tensor())
        assert through_file(mesh, weights_only=False) is mesh
        assert pickle.loads(pickle.dumps(mesh["dp"])) == mesh["dp"]

    on_mesh((2, 2), program, ("dp", "tp"))


def test_a_mesh_that_is_gone_is_made_again():
    def program(mesh):
        facts = mesh.facts() | {"names": ["other"]}
        again = pickle.loads(pickle.dumps(mesh)).__reduce__()[0](facts)
        x = distribute_tensor(torch.arange(4.0), again, [Shard(0)])
        assert again.mesh_dim_names == ("other",)
        assert x.full_tensor().tolist() == [0, 1, 2, 3]

    on_mesh((2,), program)


def test_modules_and_optimizers():
    def program(mesh):
        layer = nn.Linear(4, 4)
        layer.weight = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
        layer.weight.note = "mine"
        optimizer = torch.optim.Adam([layer.weight])
        layer.weight.grad = layer.weight.detach().clone()
        optimizer.step()
        again = through_file(layer, weights_only=False)
        assert isinstance(again.weight, nn.Parameter)
        assert isinstance(again.weight, DTensor)
        assert again.weight.note == "mine"
        assert again.weight.requires_grad
        assert again.weight.full_tensor().equal(layer.weight.full_tensor())
        state = through_file(layer.state_dict())
        assert isinstance(state["weight"], DTensor)
        assert state["bias"].equal(layer.bias)
        average = through_file(optimizer.state_dict())["state"][0]["exp_avg"]
        assert isinstance(average, DTensor)
        assert average.placements == (Shard(0),)

    on_mesh((2,), program)


def test_parameters_say_what_they_are():
    def program(mesh):
        weight = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
        assert type(weight).__name__ == "DTensor"
        assert isinstance(weight, (nn.Parameter, DTensor))
        assert isinstance(copy.deepcopy(weight), nn.Parameter)

    on_mesh((2,), program)


def test_placements_in_files():
    placements = [Shard(0), Replicate(), Partial("max"), _StridedShard(1, split_factor=2)]
    assert through_file(placements) == placements
    assert [placement_from(str(one)) for one in placements] == placements
    with pytest.raises(ValueError, match=r"^'S\(x\)' is no placement$"):
        placement_from("S(x)")


def test_a_part_of_another_size_is_refused():
    def program(mesh):
        x = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
        parts = [None, None]
        torch.distributed.all_gather_object(parts, pickle.dumps(x))
        if mesh.get_rank() == 1:
            with pytest.raises(RuntimeError, match=r"^from_local: rank 1 has a part of size \[3\], but its part"):
                pickle.loads(parts[0])

    on_mesh((2,), program)
