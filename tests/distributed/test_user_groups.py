"""Groups whose collectives are methods of a user's class, and groups whose other ranks do not exist."""

from __future__ import annotations

import pytest

import weft as torch
import weft.distributed as dist
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor import Shard, distribute_tensor


class Done(dist.Work):
    def wait(self, timeout=None):
        return True


class Adding(dist.ProcessGroup):
    """Each method leaves another number, by which it is known."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self._rank, self._size = rank, size

    def allreduce(self, tensors, opts=None):
        assert opts.reduceOp is dist.ReduceOp.SUM
        for x in tensors:
            x.add_(2)
        return Done()

    def broadcast(self, tensors, opts=None):
        for x in tensors:
            x.add_(opts.rootRank + 1)
        return Done()

    def allgather(self, outputs, inputs, opts=None):
        for results, x in zip(outputs, inputs, strict=True):
            for result in results:
                result.copy_(x)
        return Done()

    def recv(self, tensors, source, tag=0):
        tensors[0].fill_(10 * source + tag)
        return Done()


@pytest.fixture
def joined():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_functions_call_the_methods_of_a_registered_class(joined):
    dist.Backend.register_backend("adding", lambda store, rank, size, timeout: Adding(rank, size))
    group = dist.new_group([0], backend="adding")
    assert type(group) is Adding
    assert (dist.get_backend(group), dist.get_rank(group), dist.get_world_size(group)) == ("adding", 0, 1)
    x = torch.ones(2)
    view = x[:1]
    dist.all_reduce(view, group=group)
    assert x.tolist() == [3, 1]
    work = dist.broadcast(x, 0, group=group, async_op=True)
    assert work.wait()
    assert x.tolist() == [4, 2]
    results = [torch.zeros(2)]
    dist.all_gather(results, x, group=group)
    assert results[0].tolist() == [4, 2]
    assert group.allreduce([x], dist.AllreduceOptions()).wait()
    assert x.tolist() == [6, 4]
    with pytest.raises(RuntimeError, match=r"^Backend adding does not support reduce: Adding does not define it$"):
        dist.reduce(x, 0, group=group)
    with pytest.raises(RuntimeError, match=r"^Backend adding does not support barrier"):
        dist.barrier(group)


def test_an_object_that_nobody_has_registered(joined):
    group = Adding(0, 1)
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [3, 3]


def test_the_extended_form_gets_one_object(joined):
    seen = []

    def make(options, others):
        seen.append((options.group_rank, options.group_size, options.global_ranks_in_group, others))
        return Adding(options.group_rank, options.group_size)

    dist.Backend.register_backend("extended", make, extended_api=True)
    assert dist.new_group([0], backend="extended").size() == 1
    assert seen == [(0, 1, [0], None)]


def test_a_rank_of_a_job_of_any_size():
    """The others have what this one has; nobody is waited for."""
    dist.init_process_group("fake", rank=1, world_size=64)
    try:
        assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("fake", 1, 64)
        x = torch.tensor([1.0, 2.0])
        dist.all_reduce(x)
        results = [torch.zeros(2) for _ in range(64)]
        dist.all_gather(results, x)
        assert results[63].tolist() == x.tolist() == [1, 2]
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, torch.arange(128.0))
        assert part.tolist() == [2, 3]
        dist.recv(part, 0)
        dist.barrier()
        assert dist.new_group([2, 3]) is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.new_group([0, 1], use_local_synchronization=True).rank() == 1
        mesh = init_device_mesh("cpu", (8, 8), mesh_dim_names=("rows", "columns"))
        assert mesh.get_coordinate() == (0, 1) or mesh.get_coordinate() == [0, 1]
        whole = distribute_tensor(torch.ones(16, 2), mesh["rows"], [Shard(0)])
        assert whole.to_local().shape == (2, 2)
        assert whole.full_tensor().shape == (16, 2)
    finally:
        dist.destroy_process_group()
