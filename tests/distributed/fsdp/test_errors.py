"""What `fully_shard` refuses, with PyTorch's exceptions."""

from __future__ import annotations

import copy

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.fsdp import fully_shard, register_fsdp_forward_method, share_comm_ctx
from weft.distributed.tensor import Replicate, Shard


class Holder(nn.Module):
    def __init__(self, parameter):
        super().__init__()
        self.parameter = parameter

    def forward(self, x):
        return x * self.parameter


def linear():
    return nn.Linear(2, 2)


def nested():
    return nn.Sequential(linear(), linear())


def refused(call):
    """What a call raises in a job of one rank, where `call` gets the mesh."""

    def program(mesh):
        with pytest.raises(Exception) as caught:  # noqa: PT011  the caller looks at it
            call(mesh)
        return caught.value

    return on_mesh((1,), program)[0]


def twice(mesh):
    fully_shard(fully_shard(linear(), mesh=mesh), mesh=mesh)


def shards_an_inner_module_last(mesh):
    model = nn.Sequential(linear(), linear())
    fully_shard(model, mesh=mesh)
    fully_shard(model[0], mesh=mesh)


def runs_an_inner_module_first(mesh):
    model = nested()
    fully_shard(model[0], mesh=mesh)(torch.ones(1, 2))
    fully_shard(model, mesh=mesh)(torch.ones(1, 2))


def shares_over_groups(mesh):
    model = nested()
    model[1].weight = model[0].weight
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)


def mixes_types(mesh):
    fully_shard(nn.Sequential(linear(), linear().double()), mesh=mesh)(torch.ones(1, 2))


def resets_an_inner_module(mesh):
    model = nested()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)(torch.ones(1, 2))
    model[0].reset_iter_state()


def asks_for_second_derivatives(mesh):
    model = fully_shard(linear(), mesh=mesh)
    model(torch.ones(1, 2)).sum().backward(create_graph=True)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (twice, AssertionError, "can only be applied to a module once. fully_shard has already been applied"),
        (lambda m: fully_shard(torch.ones(2), mesh=m), TypeError, "takes a module, or a list of modules"),
        (lambda m: fully_shard([], mesh=m), TypeError, "takes a module, or a list of modules"),
        (lambda m: fully_shard(nn.ModuleList([linear()]), mesh=m), ValueError, "containers that do not implement forw"),
        (lambda m: fully_shard(linear(), mesh=3), ValueError, "expects a 1D or 2D DeviceMesh but got 3"),
        (
            lambda m: fully_shard(linear(), mesh=init_device_mesh("cpu", (1, 1, 1))),
            ValueError,
            "expects a 1D or 2D DeviceMesh but got",
        ),
        (
            lambda m: fully_shard(linear(), mesh=init_device_mesh("cpu", (1, 1))),
            AssertionError,
            "Please init the 2D mesh for HSDP with mesh_dim_names specified",
        ),
        (lambda m: fully_shard(linear(), mesh=m, reshard_after_forward="x"), ValueError, "should be a bool or an int"),
        (lambda m: fully_shard(linear(), mesh=m, reshard_after_forward=3), ValueError, "a factor of 1, not 3"),
        (
            lambda m: fully_shard(Holder(nn.Parameter(torch.tensor(1.0))), mesh=m),
            ValueError,
            "doesn't support scalar parameters. Change parameter to a 1D tensor",
        ),
        (
            lambda m: fully_shard(linear(), mesh=m, shard_placement_fn=lambda p: Replicate()),
            ValueError,
            "Invalid shard_placement_fn result: R",
        ),
        (
            lambda m: fully_shard(linear(), mesh=m, shard_placement_fn=lambda p: Shard(5)),
            AssertionError,
            "Shard dim 5 is invalid for 2D tensor",
        ),
        (mixes_types, AssertionError, "FSDP expects uniform original parameter dtype but got"),
        (shares_over_groups, ValueError, "is shared with a parameter already managed by another FSDP group"),
        (shards_an_inner_module_last, ValueError, "shard the inner one first"),
        (runs_an_inner_module_first, RuntimeError, "has already been lazily initialized for 0"),
        (resets_an_inner_module, RuntimeError, "must be called on the root FSDP module"),
        (asks_for_second_derivatives, RuntimeError, "fully sharded parameters have no derivative"),
        (lambda m: copy.deepcopy(fully_shard(linear(), mesh=m)), AssertionError, "FSDP does not support deepcopy"),
        (
            lambda m: fully_shard(linear(), mesh=m).set_reshard_after_forward(3),
            ValueError,
            "reshard_after_forward should be a bool",
        ),
        (
            lambda m: fully_shard(linear(), mesh=m).set_modules_to_forward_prefetch([linear()]),
            ValueError,
            "Expects FSDPModule but got",
        ),
        (lambda m: share_comm_ctx([linear()]), ValueError, "Expects FSDPModule but got"),
        (
            lambda m: register_fsdp_forward_method(fully_shard(linear(), mesh=m), "encode"),
            ValueError,
            "does not have a method encode",
        ),
    ],
)
def test_it_is_refused(call, kind, text):
    error = refused(call)
    assert isinstance(error, kind), error
    assert text in str(error)


def test_a_refused_module_is_unchanged():
    def program(mesh):
        model = nn.Sequential(linear(), Holder(nn.Parameter(torch.tensor(1.0))))
        before = list(model.parameters())
        with pytest.raises(ValueError, match="scalar"):
            fully_shard(model, mesh=mesh)
        assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
        assert type(model) is nn.Sequential

    on_mesh((1,), program)


def test_integers_are_sharded_as_they_are():
    def program(mesh):
        model = fully_shard(Holder(nn.Parameter(torch.arange(3), requires_grad=False)), mesh=mesh)
        return model(torch.ones(3)).tolist()

    assert on_mesh((2,), program) == [[0, 1, 2]] * 2
