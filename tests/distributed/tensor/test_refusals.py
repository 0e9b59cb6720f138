"""The exceptions that PyTorch raises, so that programs which catch them need no change."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed import tensor as dtensor
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from weft.nn import functional as F


def linear():
    return nn.Linear(4, 4)


def x(*size, requires_grad=False):
    return torch.ones(size or (4,), requires_grad=requires_grad)


def split(mesh, dim=0):
    return distribute_tensor(x(4, 4), mesh, [Shard(dim)])


def two_dims():
    return init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))


class Pair(nn.Module):
    def forward(self, one, other=None):
        return one, other


def prepared(mesh, *inputs):
    return parallelize_module(
        Pair(), mesh, PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
    )(*inputs)


def loss(mesh, placement):
    with loss_parallel():
        F.cross_entropy(distribute_tensor(x(4, 4), mesh, [placement]), torch.zeros(4, dtype=torch.long))


TENSORS = [
    (AssertionError, "the tensor has 1 dims", lambda mesh: distribute_tensor(x(), mesh, [Shard(5)])),
    (AssertionError, "the tensor has 0 dims", lambda mesh: distribute_tensor(torch.tensor(1.0), mesh, [Shard(0)])),
    (AssertionError, "the tensor has 2 dims", lambda mesh: split(mesh).redistribute(placements=[Shard(5)])),
    (RuntimeError, "the tensor has 1 dims", lambda mesh: DTensor.from_local(x(), mesh, [Shard(5)])),
    (IndexError, "the tensor has 1 dims", lambda mesh: dtensor.zeros(4, device_mesh=mesh, placements=[Shard(5)])),
    (ValueError, "same length", lambda mesh: distribute_tensor(x(), mesh, [Shard(0), Replicate()])),
    (AssertionError, "same length", lambda mesh: dtensor.ones(4, device_mesh=mesh, placements=[Shard(0)] * 2)),
    (AssertionError, "layout", lambda mesh: dtensor.zeros(4, device_mesh=mesh, layout=torch.sparse_coo)),
    (AssertionError, "drawn", lambda mesh: dtensor.rand(4, device_mesh=mesh, placements=[Partial()])),
    (RuntimeError, "a placement is", lambda mesh: distribute_tensor(x(), mesh, ["x"])),
    (RuntimeError, "a placement is", lambda mesh: DTensor.from_local(x(), mesh, [None])),
    (ValueError, "reduce_op: bogus", lambda mesh: distribute_tensor(x(), mesh, [Partial("bogus")])),
    (ValueError, "Mixed Partial", lambda mesh: distribute_tensor(x(), two_dims(), [Partial(), Partial("max")])),
    (ValueError, "Mixed Partial", lambda mesh: DTensor.from_local(x(), two_dims(), [Partial(), Partial("max")])),
    (TypeError, "number of a dim", lambda mesh: Shard("a")),
    (TypeError, "number of a dim", lambda mesh: Shard(None)),
    (TypeError, "name of a reduction", lambda mesh: Partial(3)),
    (RuntimeError, "leaf tensors", lambda mesh: distribute_tensor(x(requires_grad=True) * 2, mesh, [Shard(0)])),
    (RuntimeError, "root rank", lambda mesh: distribute_tensor(x(), mesh, [Shard(0)], src_data_rank=9)),
    (ValueError, "to a different device mesh", lambda mesh: distribute_tensor(split(mesh), two_dims(), [Shard(0)] * 2)),
    (ValueError, "to different placements", lambda mesh: distribute_tensor(split(mesh), mesh, [Replicate()])),
    (RuntimeError, "only accepts torch.Tensor", lambda mesh: DTensor.from_local(split(mesh), mesh)),
    (RuntimeError, "both shape and stride", lambda mesh: DTensor.from_local(x(), mesh, [Shard(0)], stride=(1,))),
    (RuntimeError, "placements is needed", lambda mesh: split(mesh).redistribute()),
    (RuntimeError, "internal use only", lambda mesh: split(mesh).redistribute(placements=[Partial()])),
    (RuntimeError, "No device mesh", lambda mesh: distribute_tensor(x())),
    (RuntimeError, "got mixed", lambda mesh: split(mesh) + x(4, 4)),
    (RuntimeError, "got mixed", lambda mesh: split(mesh).set_(x(4, 4))),
    (RuntimeError, "got mixed", lambda mesh: torch.mm(x(4, 4), split(mesh))),
    (RuntimeError, "got mixed", lambda mesh: torch.cat([split(mesh), x(4, 4)])),
]

MODULES = [
    (RuntimeError, "only be called once", lambda mesh: distribute_module(distribute_module(linear(), mesh), mesh)),
    (ValueError, "3 arguments", lambda mesh: distribute_module(linear(), mesh, input_fn=lambda own: own)),
    (ValueError, "3 arguments", lambda mesh: distribute_module(linear(), mesh, output_fn=lambda a, b, c, d: b)),
    (NotImplementedError, "only supports", lambda mesh: parallelize_module(nn.LayerNorm(4), mesh, ColwiseParallel())),
    (NotImplementedError, "only supports", lambda mesh: parallelize_module(nn.LayerNorm(4), mesh, RowwiseParallel())),
    (TypeError, "parallelize_plan", lambda mesh: parallelize_module(linear(), mesh, 3)),
    (ValueError, "one dim", lambda mesh: parallelize_module(linear(), two_dims(), ColwiseParallel())),
    (
        AssertionError,
        "input_layouts and desired_input_layouts should have same length",
        lambda mesh: PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=(Replicate(), None)),
    ),
    (
        AssertionError,
        "output_layouts and desired_output_layouts should have same length",
        lambda mesh: PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=(Replicate(), None)),
    ),
    (ValueError, "inputs and input_layouts should have same length", lambda mesh: prepared(mesh, x(), x())),
    (AssertionError, "expecting input to be a torch.Tensor", lambda mesh: prepared(mesh, 3)),
    (
        ValueError,
        "expecting input of LayerNorm",
        lambda mesh: parallelize_module(nn.LayerNorm(4), mesh, SequenceParallel())(3),
    ),
    (ValueError, "exactly one mesh dim to shard tensor dimension 1", lambda mesh: loss(mesh, Shard(0))),
    (ValueError, "exactly one mesh dim to shard tensor dimension 1", lambda mesh: loss(mesh, Replicate())),
]

MESHES = [
    (ValueError, "different ones", lambda mesh: DeviceMesh("cpu", [0, 0])),
    (ValueError, "different ones", lambda mesh: DeviceMesh("cpu", [0, 9])),
    (RuntimeError, "not be bigger", lambda mesh: DeviceMesh("cpu", [0, 1, 2])),
    (TypeError, "array of ranks", lambda mesh: DeviceMesh("cpu", None)),
    (TypeError, "array of ranks", lambda mesh: DeviceMesh("cpu", "ab")),
    (AssertionError, "one rank at least", lambda mesh: DeviceMesh("cpu", np.zeros((0,), int))),
    (ValueError, "same length as the number", lambda mesh: DeviceMesh("cpu", [0, 1], backend_override=())),
    (AssertionError, "one rank at least", lambda mesh: init_device_mesh("cpu", (0, 2))),
    (RuntimeError, "positive sizes", lambda mesh: init_device_mesh("cpu", (-2,))),
    (ValueError, "mesh_shape", lambda mesh: init_device_mesh("cpu", "a")),
    (TypeError, "device_type", lambda mesh: init_device_mesh(None, (2,))),
    (RuntimeError, "not be bigger", lambda mesh: init_device_mesh("cpu", (2, 2))),
    (RuntimeError, "must be unique", lambda mesh: init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "a"))),
    (RuntimeError, "same length", lambda mesh: init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b"))),
    (
        RuntimeError,
        r"invalid keys .*\['c'\]",
        lambda mesh: init_device_mesh("cpu", (2,), backend_override={"c": "gloo"}),
    ),
    (
        RuntimeError,
        "redundant dim index 0 and name a",
        lambda mesh: init_device_mesh(
            "cpu", (2,), mesh_dim_names=("a",), backend_override={"a": "threads", 0: "threads"}
        ),
    ),
    (RuntimeError, "needs `mesh_dim`", lambda mesh: two_dims().get_group()),
    (RuntimeError, "needs `mesh_dim`", lambda mesh: two_dims().get_local_rank()),
    (AssertionError, "must be an int", lambda mesh: two_dims().get_group(1.5)),
    (IndexError, "out of range", lambda mesh: two_dims().get_group(5)),
    (KeyError, "'pp'", lambda mesh: two_dims().get_group("pp")),
    (KeyError, "Invalid mesh_dim_names", lambda mesh: two_dims()["pp"]),
    (RuntimeError, "without mesh_dim_names", lambda mesh: mesh["dp"]),
    (ValueError, "at least one ProcessGroup", lambda mesh: DeviceMesh.from_group([], "cpu")),
    (ValueError, "Invalid mesh", lambda mesh: DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh=[0])),
]


@pytest.mark.parametrize(("kind", "text", "call"), [*TENSORS, *MODULES, *MESHES])
def test_exceptions_are_those_of_pytorch(kind, text, call):
    on_mesh((2,), lambda mesh: refuses(lambda: call(mesh), kind, text))


@pytest.mark.parametrize(
    "own",
    [
        lambda rank: x(2).to(torch.float64 if rank else torch.float32),
        lambda rank: x(2 + rank),
        lambda rank: x(2, requires_grad=bool(rank)),
        lambda rank: x(3, 3) if rank else x(3, 3).t(),
    ],
)
def test_parts_that_differ_are_refused_where_this_is_checked(own):
    def program(mesh):
        part = own(mesh.get_rank())
        refuses(lambda: DTensor.from_local(part, mesh, [Shard(0)], run_check=True), ValueError, "differ in type, size")

    on_mesh((2,), program)


def test_functions_around_a_module_that_do_not_take_it_are_deprecated():
    def program(mesh):
        with pytest.warns(FutureWarning, match=r"Deprecating (in|out)put_fn that takes two") as warned:
            module = distribute_module(
                nn.Identity(),
                mesh,
                input_fn=lambda inputs, mesh: DTensor.from_local(inputs[0], mesh, [Shard(0)]),
                output_fn=lambda output, mesh: output.to_local(),
            )
        assert len(warned) == 2
        return module(x(2)).tolist()

    assert on_mesh((1,), program) == [[1, 1]]


def test_groups_along_a_dim_have_the_backend_that_is_asked_for():
    def program(mesh):
        made = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"), backend_override={"a": "fake"})
        return dist.get_backend(made.get_group("a")), dist.get_backend(made.get_group("b"))

    assert on_mesh((2,), program) == [("fake", "threads")] * 2


def test_the_address_is_that_of_the_part():
    def program(mesh):
        x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        return x.data_ptr() == x.to_local().data_ptr() != 0

    assert on_mesh((2,), program) == [True, True]
