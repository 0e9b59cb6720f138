"""Writes to parts of distributed tensors that `from_local` has made: they are views of plain tensors."""

from __future__ import annotations

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def assigned(x):
    x[0, 1] = 7.0


def assigned_row(x):
    x[1] = distribute_tensor(torch.arange(4.0), x.device_mesh, [Replicate()])


def filled(x):
    x[0].fill_(7.0)


def increased(x):
    x[0] += 1


def doubled(x):
    x.select(1, 2).mul_(2)


def transposed(x):
    x.t().add_(distribute_tensor(torch.arange(2.0), x.device_mesh, [Replicate()]))


def viewed(x):
    x.view(-1)[1:3] *= 2


WRITES = [assigned, assigned_row, filled, increased, doubled, transposed, viewed]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "placement", [Partial(), Partial("avg"), Partial("max"), Replicate(), Shard(0), Shard(1)], ids=str
)
def test_a_write_reaches_the_whole_tensor(write, placement):
    shape = [2, 4]

    def program(mesh):
        size = [s // mesh.size() if placement.is_shard(dim) else s for dim, s in enumerate(shape)]
        local = torch.full(size, 3.0)
        x = DTensor.from_local(local, mesh, [placement])
        expected = x.full_tensor().clone()
        write(x)
        write(distribute_tensor(expected, mesh, [Replicate()]))  # what it writes may be distributed
        plain = distribute_tensor(expected, mesh, [Replicate()])
        write(plain)
        return x.placements, x.full_tensor().tolist(), plain.full_tensor().tolist(), x.to_local().equal(local)

    for placements, values, expected, is_view in on_mesh((2,), program):
        assert placements == (placement,)
        assert values == expected
        assert is_view


def test_one_write_does_not_spoil_the_next():
    """An assignment of a number was once recorded for the wrong types, which the next write then found."""

    def program(mesh):
        for write in WRITES * 2:
            write(DTensor.from_local(torch.full((2, 4), 3.0), mesh, [Partial()]))
        x = DTensor.from_local(torch.full((2, 4), 3.0), mesh, [Partial()])
        increased(x)
        return x.full_tensor().tolist()

    assert on_mesh((2,), program) == [[[7.0] * 4, [6.0] * 4]] * 2


def test_other_handles_of_partial_tensors_stay_partial():
    def program(mesh):
        x = DTensor.from_local(torch.ones(2), mesh, [Partial()])
        return [x.detach().placements, x.data.placements, x.redistribute(placements=[Partial()]).placements]

    assert on_mesh((2,), program) == [[(Partial(),)] * 3] * 2
