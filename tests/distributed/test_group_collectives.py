"""Collectives as methods of a group, with PyTorch's names, lists and objects of options."""

from __future__ import annotations

import threading
import traceback
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft.distributed import run_threads
from weft.distributed.distributed_c10d import AllgatherOptions
from weft.nn.parallel import DistributedDataParallel


def in_group(call, nprocs=3):
    """What `call(group, rank)` gives on each rank of a job."""

    def rank(me):
        dist.init_process_group("threads")
        return call(dist.group.WORLD, me)

    return run_threads(rank, nprocs=nprocs)


def options(kind, **fields):
    found = kind()
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def one(me):
    return weft.tensor([float(me), 1.0])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda g, me, x: g.allreduce([x]), [3, 3]),
        (lambda g, me, x: g.allreduce(x), [3, 3]),
        (lambda g, me, x: g.allreduce([x], dist.ReduceOp.MAX), [2, 1]),
        (lambda g, me, x: g.allreduce(x, op=dist.ReduceOp.MAX, timeout=timedelta(seconds=60)), [2, 1]),
        (lambda g, me, x: g.allreduce([x], options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.PRODUCT)), [0, 1]),
        (lambda g, me, x: g.allreduce_coalesced([x], dist.AllreduceCoalescedOptions()), [3, 3]),
        (lambda g, me, x: g.broadcast([x]), [0, 1]),
        (lambda g, me, x: g.broadcast(x, 2), [2, 1]),
        (lambda g, me, x: g.broadcast(x, root=1), [1, 1]),
        (lambda g, me, x: g.broadcast([x], options(dist.BroadcastOptions, rootRank=2)), [2, 1]),
    ],
)
def test_what_all_ranks_get(call, expected):
    def rank(group, me):
        x = one(me)
        work = call(group, me, x)
        assert isinstance(work, dist.Work)
        assert work.wait() is True
        assert work.is_completed()
        assert work.result() == [x]
        assert work.get_future().wait() == [x]
        return x.tolist()

    assert in_group(rank) == [expected] * 3


def test_reduced_to_one_rank():
    def rank(group, me):
        x, y, z = one(me), one(me), one(me)
        group.reduce([x], options(dist.ReduceOptions, rootRank=1)).wait()
        group.reduce(y, 1).wait()
        group.reduce(z, root=1, op=dist.ReduceOp.MAX).wait()
        return [t.tolist() for t in (x, y, z)]

    first, second, third = in_group(rank)
    assert second == [[3, 3], [3, 3], [2, 1]]
    assert (first, third) == ([[0, 1]] * 3, [[2, 1]] * 3)


def test_gathered_and_scattered():
    def rank(group, me):
        empty = [weft.zeros(2) for _ in range(3)]
        every, all_of_one, singles = [[weft.zeros(2) for _ in range(3)] for _ in range(3)]
        group.allgather([every], [one(me)], AllgatherOptions()).wait()
        group.allgather(singles, one(me), timedelta(seconds=60)).wait()
        group.gather([all_of_one] if me == 2 else [], [one(me)], options(dist.GatherOptions, rootRank=2)).wait()
        got, again = weft.zeros(2), weft.zeros(2)
        group.scatter([got], [[one(10 * i) for i in range(3)]] if not me else [], dist.ScatterOptions()).wait()
        group.scatter(again, [one(20 * i) for i in range(3)] if me == 1 else [], root=1).wait()
        parts, summed = [one(me + i) for i in range(3)], weft.zeros(2)
        group.reduce_scatter([summed], [parts]).wait()
        group.reduce_scatter(empty[0], parts, dist.ReduceOp.MAX).wait()
        for listed in (every, singles):
            assert [x.tolist() for x in listed] == [[0, 1], [1, 1], [2, 1]]
        assert [x[0].item() for x in all_of_one] == ([0, 1, 2] if me == 2 else [0, 0, 0])
        return [x.tolist() for x in (got, again, summed, empty[0])]

    assert in_group(rank) == [[[10 * i, 1], [20 * i, 1], [3 + 3 * i, 3], [2 + i, 1]] for i in range(3)]


@pytest.mark.parametrize("name", ["_allgather_base", "all_gather_single"])
def test_gathered_into_one_tensor(name):
    def rank(group, me):
        whole, both = weft.zeros(6), [weft.zeros(3, 2), weft.zeros(3)]
        getattr(group, name)(whole, one(me)).wait()
        group.allgather_into_tensor_coalesced(both, [one(me), weft.tensor([me + 5.0])]).wait()
        lists = [[weft.zeros(2), weft.zeros(1)] for _ in range(3)]
        group.allgather_coalesced(lists, [one(me), weft.tensor([me + 7.0])]).wait()
        with pytest.raises(ValueError, match="as many outputs as inputs, but got 2 and 1"):
            group.allgather_into_tensor_coalesced(both, [one(me)])
        return [x.tolist() for x in (whole, *both, *lists[1])]

    assert in_group(rank) == [[[0, 1, 1, 1, 2, 1], [[0, 1], [1, 1], [2, 1]], [5, 6, 7], [1, 1], [8]]] * 3


@pytest.mark.parametrize("name", ["_reduce_scatter_base", "reduce_scatter_single"])
def test_reduced_from_one_tensor(name):
    def rank(group, me):
        x, summed, greatest, coalesced = weft.arange(3.0) + me, weft.zeros(1), weft.zeros(1), weft.zeros(1)
        getattr(group, name)(summed, x).wait()
        getattr(group, name)(greatest, x, options(dist.ReduceScatterOptions, reduceOp=dist.ReduceOp.MAX)).wait()
        group.reduce_scatter_tensor_coalesced([coalesced], [x]).wait()
        return [t.item() for t in (summed, greatest, coalesced)]

    assert in_group(rank) == [[3 * i + 3, i + 2, 3 * i + 3] for i in range(3)]


@pytest.mark.parametrize("name", ["alltoall_base", "all_to_all_single"])
def test_all_to_all(name):
    def rank(group, me):
        results, even = [weft.zeros(me + 1) for _ in range(3)], weft.zeros(3)
        group.alltoall(results, [weft.full((i + 1,), float(me)) for i in range(3)], dist.AllToAllOptions()).wait()
        assert [x.tolist() for x in results] == [[i] * (me + 1) for i in range(3)]
        getattr(group, name)(even, weft.arange(3.0) + 10 * me, [], []).wait()
        uneven = weft.zeros(3 * (me + 1))
        getattr(group, name)(uneven, weft.full((6,), float(me)), [me + 1] * 3, [1, 2, 3]).wait()
        assert uneven.tolist() == sorted([0, 1, 2] * (me + 1))
        return even.tolist()

    assert in_group(rank) == [[i, 10 + i, 20 + i] for i in range(3)]


def test_messages_and_barriers():
    def rank(group, me):
        x = one(me)
        if me == 0:
            group.send([x], 1, 3).wait()
            group.send([x + 1], 1, 4).wait()
        elif me == 1:
            group.recv([x], 0, 3).wait()
            y = one(me)
            work = group.recv_anysource([y], 4)
            work.wait()
            assert (y.tolist(), work._source_rank(), work.source_rank()) == ([1, 2], 0, 0)
        assert group.barrier().wait()
        assert group.barrier(dist.BarrierOptions()).get_future().wait() == []
        group.monitored_barrier(timedelta(seconds=60))
        group.monitored_barrier(wait_all_ranks=True)
        return x.tolist()

    assert in_group(rank) == [[0, 1], [0, 1], [2, 1]]


def test_ranks_are_those_of_the_group():
    def rank(me):
        dist.init_process_group("threads")
        group = dist.new_group([1, 2])
        if not me:
            return None
        x = one(me)
        group.broadcast([x], 1).wait()
        if group.rank():
            group.send([x], 0, 0).wait()
        else:
            group.recv([x], 1, 0).wait()
        return x.tolist()

    assert run_threads(rank, nprocs=3) == [None, [2, 1], [2, 1]]


def test_what_is_no_list_of_one_tensor():
    def rank(group, me):
        x = one(me)
        with pytest.raises(RuntimeError, match=r"^Expecting one tensor only but got 2"):
            group.allreduce([x, x])
        with pytest.raises(TypeError, match="opts must be BroadcastOptions, but got AllreduceOptions"):
            group.broadcast([x], dist.AllreduceOptions())
        with pytest.raises(TypeError, match="opts must be AllToAllOptions, but got int"):
            group.alltoall([x], [x], 3)
        with dist._coalescing_manager(group), pytest.raises(RuntimeError, match=r"must be functions of weft.dist"):
            group.allreduce([x])

    in_group(rank, nprocs=1)


def test_operations_have_a_time_of_their_own():
    failed = threading.Event()

    def rank(group, me):
        if me:
            failed.wait(60)
            return
        work = group.allreduce([weft.ones(1)], options(dist.AllreduceOptions, timeout=timedelta(seconds=0.1)))
        with pytest.raises(RuntimeError, match=" Timed out waiting 100ms for rank 1; see what holds it up") as raised:
            work.wait()
        assert traceback.extract_tb(raised.value.__traceback__)[-1].filename == __file__
        assert group.timeout > timedelta(minutes=1)
        failed.set()

    in_group(rank, nprocs=2)


def test_options_have_pytorchs_fields():
    assert dist.AllreduceOptions().reduceOp is dist.ReduceOp.SUM
    found = dist.ReduceOptions()
    assert (found.rootRank, found.rootTensor, found.asyncOp) == (0, 0, True)
    assert found.timeout < timedelta(0)
    assert dist.BarrierOptions().device_ids == []


def test_a_hook_may_use_the_groups_methods():
    def hook(group, bucket):
        future = group.allreduce([bucket.buffer()]).get_future()
        return future.then(lambda done: done.value()[0] / group.size())

    def rank(group, me):
        model = weft.nn.Linear(2, 1, bias=False)
        with weft.no_grad():
            model.weight.fill_(0)
        replica = DistributedDataParallel(model)
        replica.register_comm_hook(group, hook)
        for _ in range(2):
            model.weight.grad = None
            replica(one(me)).sum().backward()
        return model.weight.grad.tolist()

    assert in_group(rank) == [[[1, 1]]] * 3


def test_a_gloo_group_by_itself():
    store = dist.HashStore()

    def rank(me):
        chosen = dist.ProcessGroupGloo._Options()
        chosen._timeout = timedelta(seconds=60)
        chosen._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
        group = dist.ProcessGroupGloo(store, me, 2, chosen)
        x = one(me)
        group.allreduce([x]).wait()
        assert group.get_group_store() is store
        assert (group.name(), group.timeout, isinstance(group, dist.ProcessGroup)) == ("gloo", chosen._timeout, True)
        dist.destroy_process_group(group)
        return x.tolist()

    assert run_threads(rank) == [[1, 2]] * 2
