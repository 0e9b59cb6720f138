"""A process's part of a distributed tensor is a view: what is written to one of them is written to the other."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.fsdp import fully_shard
from weft.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, zeros


def whole(mesh):
    """Rows 0 to 3, of which each process has one."""
    return distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])


def everywhere(program):
    """What the program returns on each of four processes, which must be equal."""
    first, *others = on_mesh((4,), program)
    assert others == [first] * 3
    return first


def test_what_is_written_to_the_part_is_written_to_the_tensor():
    def program(mesh):
        x, rank = whole(mesh), mesh.get_rank()
        part = x.to_local()
        part.mul_(10)
        part[0, 1] = rank
        part.view(-1)[:1].add_(0.5)
        x._local_tensor[:, 1].sub_(1)
        return x.full_tensor().tolist()

    assert everywhere(program) == [[10.0 * 2 * row + 0.5, row - 1] for row in range(4)]


def test_what_is_written_to_the_tensor_is_seen_in_the_part():
    def program(mesh):
        x = whole(mesh)
        part = x.to_local()
        element = part[0, 1]
        x.mul_(3)
        x[:, 0].fill_(9)
        assert x[:, :1].to_local().tolist() == [[9]]
        return part.tolist(), element.item()

    assert on_mesh((4,), program) == [([[9, 6.0 * row + 3]], 6 * row + 3) for row in range(4)]


def test_collectives_write_to_the_part():
    def program(mesh):
        x, y, z = whole(mesh), whole(mesh), whole(mesh)
        dist.broadcast(x.to_local(), 2)
        dist.all_reduce(y.to_local())
        dist.all_gather([z.to_local(), *[torch.empty(1, 2) for _ in range(3)]], torch.ones(1, 2))
        return [t.full_tensor()[1].tolist() for t in (x, y, z)]

    assert everywhere(program) == [[4, 5], [12, 16], [1, 1]]


def test_a_leaf_is_written_through_its_part_outside_of_the_tape():
    def program(mesh):
        x = whole(mesh).requires_grad_()
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            x.to_local().fill_(1)
        values = []
        with torch.no_grad():
            x.to_local().fill_(2)
        values.append(x.full_tensor()[3, 1].item())
        for number, part in enumerate((x.to_local().detach(), x.to_local().data, x.data.to_local(), x._local_tensor)):
            part.fill_(3 + number)
            values.append(x.full_tensor()[3, 1].item())
        part = x.to_local()
        assert (part.requires_grad, part.is_leaf, x.is_leaf) == (True, False, True)
        (part * part).sum().backward()
        return values, x.grad.full_tensor().tolist()

    assert everywhere(program) == ([2, 3, 4, 5, 6], [[12, 12]] * 4)


def test_gradients_follow_what_is_written_to_the_part():
    def program(mesh):
        x = whole(mesh).requires_grad_()
        y = x * 2
        y.to_local().mul_(3)
        part = y.to_local()
        y.mul_(5)
        (part.sum() + y.to_local().sum()).backward()
        return x.grad.full_tensor().tolist()

    assert everywhere(program) == [[60, 60]] * 4


def test_a_part_that_is_given_is_shared():
    def program(mesh):
        part = torch.full((1, 2), float(mesh.get_rank()))
        x = DTensor.from_local(part, mesh, [Shard(0)])
        part.add_(1)
        before = x.full_tensor().tolist()
        x.mul_(2)
        assert x.to_local().data_ptr() == part.data_ptr()
        weight = torch.ones(1, 2, requires_grad=True)
        (DTensor.from_local(weight, mesh, [Shard(0)]) * x).sum().full_tensor().backward()
        return before, part.tolist(), weight.grad.tolist()

    before = [[row + 1.0] * 2 for row in range(4)]
    assert on_mesh((4,), program) == [(before, [[2.0 * row + 2] * 2], [[2.0 * row + 2] * 2]) for row in range(4)]


def test_whole_and_partial_tensors_are_shared():
    def program(mesh):
        same = zeros(3, device_mesh=mesh, placements=[Replicate()])
        same.full_tensor().fill_(2)
        same.redistribute(placements=[Replicate()]).add_(1)
        summed = DTensor.from_local(torch.ones(2), mesh, [Partial()])
        summed.to_local().fill_(2)
        return same.to_local().tolist(), summed.full_tensor().tolist()

    assert everywhere(program) == ([3, 3, 3], [8, 8])


def test_parts_of_turned_tensors_have_their_strides():
    def program(mesh):
        turned = DTensor.from_local(torch.rand(3, 5, 6), mesh, [Shard(0)]).transpose(0, 2)
        part = turned.to_local()
        wide = DTensor.from_local(torch.randn(8, 4, 8).permute(1, 2, 0), mesh, [Shard(1)])
        return turned.stride(), part.stride(), part.is_contiguous(), wide.stride()

    assert everywhere(program) == ((1, 6, 30), (1, 6, 30), False, (32, 1, 128))


def test_parameters_of_fsdp_are_written_through_their_parts():
    def program(mesh):
        layer = nn.Linear(2, 4)
        fully_shard(layer, mesh=mesh)
        with torch.no_grad():
            layer.weight.to_local().fill_(7)
            layer.bias.to_local().fill_(float(mesh.get_rank()))
        dist.broadcast(layer.bias.to_local(), 3)
        loss = layer(torch.ones(1, 2)).sum()
        loss.backward()
        layer.weight.grad.to_local().mul_(2)
        part = layer.weight.to_local()
        optimizer = torch.optim.SGD([nn.Parameter(layer.bias._local_tensor)], lr=1.0)
        optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
        optimizer.step()
        torch.optim.SGD(layer.parameters(), lr=0.5).step()
        return loss.item(), part.tolist(), layer.weight.full_tensor()[0].tolist(), layer.bias.full_tensor().tolist()

    assert everywhere(program) == (4 * 17, [[6, 6]], [6, 6], [1.5] * 4)
