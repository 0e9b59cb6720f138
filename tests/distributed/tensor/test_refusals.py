"""The exceptions that PyTorch raises, so that programs which catch them need no change."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed import tensor as dtensor
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.parallel import ColwiseParallel, parallelize_module


def linear():
    return nn.Linear(4, 4)


CASES = [
    (AssertionError, lambda mesh: distribute_tensor(torch.ones(4), mesh, [Shard(5)])),
    (RuntimeError, lambda mesh: DTensor.from_local(torch.ones(4), mesh, [Shard(5)])),
    (RuntimeError, lambda mesh: DTensor.from_local(distribute_tensor(torch.ones(4), mesh), mesh)),
    (ValueError, lambda mesh: distribute_tensor(torch.ones(4), mesh, [Shard(0), Replicate()])),
    (AssertionError, lambda mesh: dtensor.zeros(4, device_mesh=mesh, placements=[Shard(0), Replicate()])),
    (AssertionError, lambda mesh: dtensor.zeros(4, device_mesh=mesh, layout=torch.sparse_coo)),
    (RuntimeError, lambda mesh: distribute_module(distribute_module(linear(), mesh), mesh)),
    (ValueError, lambda mesh: distribute_module(linear(), mesh, input_fn=lambda own: own)),
    (ValueError, lambda mesh: distribute_module(linear(), mesh, output_fn=lambda a, b, c, d: b)),
    (NotImplementedError, lambda mesh: parallelize_module(nn.LayerNorm(4), mesh, ColwiseParallel())),
    (ValueError, lambda mesh: DeviceMesh("cpu", [0, 0])),
    (ValueError, lambda mesh: DeviceMesh("cpu", [0, 9])),
]


@pytest.mark.parametrize(("kind", "call"), CASES)
def test_exceptions_are_those_of_pytorch(kind, call):
    def program(mesh):
        with pytest.raises(kind):
            call(mesh)

    on_mesh((2,), program)


def test_the_address_is_that_of_the_part():
    def program(mesh):
        x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        return x.data_ptr() == x.to_local().data_ptr() != 0

    assert on_mesh((2,), program) == [True, True]
