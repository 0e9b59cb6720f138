"""What stands behind the results of collectives: memory of the host, which goes to a device when it is needed there."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft.distributed import run_threads
from weft.distributed._world import abridged

SIZES = [3, 1 << 16]  # copied to the device, and taken over


@pytest.mark.parametrize("size", SIZES)
def test_an_array_of_a_result_is_written_to_with_it(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(size)
        dist.all_reduce(x)
        seen, part = x.numpy(), x.numpy()[1:2]
        x.mul_(3)
        x.add_(1)
        assert x[-1].item() == 7
        return seen.sum() + part.item(), seen.flags.writeable

    assert run_threads(rank) == [(7 * size + 7, True)] * 2


@pytest.mark.parametrize("size", SIZES)
def test_a_result_that_others_share_is_not_written_over(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(size)
        dist.all_reduce(x)
        twin = x.detach().clone()
        x.mul_(3).add_(1)
        x.sum().item()
        twin.mul_(5)
        return x[0].item(), twin[-1].item()

    assert run_threads(rank) == [(7, 10)] * 2


@pytest.mark.parametrize("size", SIZES)
def test_results_go_round_without_being_looked_at(size):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.full((size,), 1.0 + me, dtype=weft.bfloat16)
        dist.all_reduce(x, async_op=True).wait()
        dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()
        dist.broadcast(x, 1)
        gathered = [weft.empty_like(x) for _ in range(2)]
        dist.all_gather(gathered, x)
        return np.unique(weft.cat(gathered).float().numpy()).tolist()

    assert run_threads(rank) == [[3.0]] * 2


def test_a_group_that_has_sent_everything_can_be_destroyed_at_once():
    def program(rank):
        dist.init_process_group("threads")
        tags = range(100)
        if rank:
            tensors = [weft.zeros(20_000) for _ in tags]
            for tag, tensor in zip(tags, tensors, strict=True):
                dist.recv(tensor, 0, tag=tag)
            return [tensor[0].item() for tensor in tensors]
        for work in [dist.isend(weft.full((20_000,), float(tag)), 1, tag=tag) for tag in tags]:
            work.wait()
        return None

    for _ in range(5):
        assert run_threads(program)[1] == list(range(100))


def test_a_message_under_way_keeps_its_memory():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(1 << 18)
        dist.all_reduce(x)
        if me:
            got = weft.empty(1 << 18)
            dist.recv(got, 0)
            return got.unique().tolist()
        y = x.detach().clone()
        work = dist.isend(x, 1)
        y.mul_(3).add_(1)
        y.sum().item()
        work.wait()
        return y.unique().tolist()

    assert run_threads(rank) == [[7.0], [2.0]]


@pytest.mark.parametrize("async_ops", [False, True])
def test_collectives_of_a_block_run_at_its_end(async_ops):
    def rank(me):
        dist.init_process_group("threads")
        xs = [weft.full((size,), 1.0 + me) for size in (2, 3)]
        gathered = weft.zeros(4)
        with dist._coalescing_manager(async_ops=async_ops) as started:
            for x in xs:
                assert dist.all_reduce(x) is None
            dist.all_gather_into_tensor(gathered, weft.full((2,), float(me)))
            assert [x.tolist() for x in xs] == [[1 + me] * 2, [1 + me] * 3]
        if async_ops:
            started.wait()
        return [x.tolist() for x in (*xs, gathered)]

    assert run_threads(rank) == [[[3, 3], [3, 3, 3], [0, 0, 1, 1]]] * 2


def test_nothing_of_a_block_that_raises_is_run():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(1)
        with suppress(KeyError), dist._coalescing_manager():
            dist.all_reduce(x)
            raise KeyError
        inner = dist._coalescing_manager()
        with dist._coalescing_manager(), pytest.raises(ValueError, match="cannot stand in each other"):
            inner.__enter__()
        dist.all_reduce(x)
        return x.item()

    assert run_threads(rank) == [2, 2]


def test_several_tensors_are_gathered_at_once():
    def rank(me):
        dist.init_process_group("threads")
        given = [weft.full((size,), float(10 * me + size)) for size in (1, 2, 3)]
        lists = [[weft.empty(size) for size in (1, 2, 3)] for _ in range(2)]
        work = dist.all_gather_coalesced(lists, given, async_op=True)
        work.wait()
        with pytest.raises(RuntimeError, match="`output_tensor_lists` has 1 tensors, but the group has 2 ranks"):
            dist.all_gather_coalesced(lists[:1], given)
        with pytest.raises(RuntimeError, match=r"`output_tensor_lists\[1\]` has 2 tensors, but `input_tensor_list` 3"):
            dist.all_gather_coalesced([lists[0], lists[1][:2]], given)
        return [[x.tolist() for x in listed] for listed in lists]

    assert run_threads(rank) == [[[[1], [2, 2], [3, 3, 3]], [[11], [12, 12], [13, 13, 13]]]] * 2


def test_subgroups_are_listed():
    def rank(me):
        dist.init_process_group("threads")
        with pytest.raises(ValueError, match=r"^Rank 1 has appeared in both subgroup \[0, 1\] and \[1\]$"):
            dist.new_subgroups_by_enumeration([[0, 1], [1]])
        mine, every = dist.new_subgroups_by_enumeration([[0, 2]])
        x = weft.ones(1)
        if mine is not None:
            dist.all_reduce(x, group=mine)
        dist.all_reduce(x, group=dist.group.WORLD)
        return (mine is every[0], x.item())

    assert run_threads(rank, nprocs=3) == [(True, 5), (False, 5), (True, 5)]


def test_the_rank_on_the_host_comes_from_the_launcher(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert dist.get_node_local_rank(fallback_rank=2) == 2
    with pytest.raises(RuntimeError, match=r"^LOCAL_RANK is not in the environment\. Consider passing fallback_rank"):
        dist.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank(fallback_rank=2) == 3


def test_a_backend_is_told_by_the_name_that_was_asked_for(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert dist.get_backend() == dist.get_backend(dist.new_group([0])) == "gloo"
        assert dist.get_backend(dist.new_group([0], backend="shm")) == "shm"
    finally:
        dist.destroy_process_group()


def test_which_backends_there_are():
    assert (dist.is_gloo_available(), dist.is_nccl_available()) == (True, weft.cuda.is_available())
    assert dist.is_mpi_available() == dist.is_backend_available("mpi")
    assert not dist.is_backend_available("carrier pigeons")


@pytest.mark.parametrize("meet", [dist.barrier, dist.monitored_barrier])
def test_results_that_nobody_waits_for_come_with_the_next_operation(meet):
    def rank(me):
        dist.init_process_group("threads")
        x, y = weft.ones(2), weft.full((1,), float(me))
        dist.all_reduce(x, async_op=True)
        dist.broadcast(y, 1, async_op=True)
        meet()
        return x.tolist(), y.tolist()

    assert run_threads(rank) == [([2, 2], [1])] * 2


def fails(call, error=RuntimeError):
    """What `call(rank)` raises on each of two ranks."""

    def rank(me):
        dist.init_process_group("threads")
        with pytest.raises(error) as raised:
            call(me)
        return str(raised.value)

    return run_threads(rank)


@pytest.mark.parametrize(
    ("call", "first", "second"),
    [
        (lambda me: dist.barrier() if me else dist.new_group([0, 1]), "new_group([0, 1])", "barrier"),
        (lambda me: dist.new_group([0] if me else [0, 1]), "new_group([0, 1])", "new_group([0])"),
        (
            lambda me: dist.new_group(backend="threads" if me else None),
            "new_group([0, 1])",
            "new_group([0, 1], backend='threads')",
        ),
        (
            lambda me: dist.split_group(split_ranks=[[0], [1]] if me else [[0, 1]]),
            "split_group([[0, 1]])",
            "split_group([[0], [1]])",
        ),
        (
            lambda me: dist.broadcast_object_list([1]) if me else dist.all_gather_object([1, 2], 3),
            "all_gather_object",
            "broadcast_object_list",
        ),
        (
            lambda me: dist.scatter_object_list([1]) if me else dist.gather_object(3, [1, 2]),
            "gather_object",
            "scatter_object_list",
        ),
        (lambda me: dist.barrier() if me else dist.monitored_barrier(), "monitored_barrier", "barrier"),
    ],
)
def test_ranks_that_call_different_things_are_told(call, first, second):
    text = f"the ranks call different operations: rank 0 called {first}, rank 1 called {second}"
    assert fails(call) == [text, text]


def test_long_lists_of_ranks_are_abridged_but_compared():
    assert abridged([0, 1]) == "[0, 1]"
    one, other = abridged([*range(100)]), abridged([*range(99), 100])
    assert one.startswith("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9,... of 100, checksum ")
    assert one != other
    assert len(one) < 64


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda obj: dist.all_gather_object([1, 2], obj), "all_gather_object: obj"),
        (lambda obj: dist.gather_object(obj, [1, 2]), "gather_object: obj"),
        (lambda obj: dist.broadcast_object_list([1, obj]), r"broadcast_object_list: object_list\[1\]"),
        (
            lambda obj: dist.scatter_object_list([1], [obj, 2]),
            r"scatter_object_list: scatter_object_input_list\[0\]",
        ),
        (lambda obj: dist.send_object_list([obj], 0), r"send_object_list: object_list\[0\]"),
    ],
)
def test_an_object_that_cannot_be_pickled_is_named(call, name):
    text = f"^{name} cannot be pickled: Can't (pickle|get) local object .*; objects travel as pickles, which functions"

    def rank(me):
        dist.init_process_group("threads")
        if me == 0:
            with pytest.raises(AttributeError, match=text):
                call(lambda: None)

    run_threads(rank)


@pytest.mark.parametrize("asks", [None, "wait", "exception", "get_future"])
def test_an_operation_that_has_failed_is_told_where_nobody_asks(asks, caplog):
    def rank(me):
        dist.init_process_group("threads")
        work = dist.all_reduce(weft.ones(2 + me), async_op=True)
        ended = threading.Event()
        work.arrived.add_done_callback(lambda _: ended.set())
        assert ended.wait(60)
        with suppress(RuntimeError):
            if asks is not None:
                getattr(work, asks)()

    run_threads(rank)
    text = "all_reduce, which was started with async_op=True, has failed, and nobody has called wait(): the ranks call"
    assert [record.getMessage().startswith(text) for record in caplog.records] == ([] if asks else [True, True])


@pytest.mark.parametrize(
    ("args", "nprocs", "text"),
    [
        (3, 2, r"^args must be a tuple of the function's further arguments, but got 3; write \(3,\)$"),
        ((), "2", "^nprocs must be an integer, but got '2'$"),
    ],
)
def test_how_threads_are_called_is_checked(args, nprocs, text):
    with pytest.raises(TypeError, match=text):
        run_threads(print, args, nprocs)


@pytest.fixture
def one_of_two():
    dist.init_process_group("fake", rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: dist.scatter_object_list([None], [1]), RuntimeError),
        (lambda: dist.scatter_object_list([], [1, 2]), ValueError),
        (lambda: dist.all_gather_object([], 1), IndexError),
        (lambda: dist.gather_object(1, [None]), IndexError),
        (lambda: dist.new_group(["a"]), TypeError),
        (lambda: dist.new_group([5]), ValueError),
        (lambda: dist._make_nccl_premul_sum("a"), TypeError),
        (lambda: dist.all_reduce(weft.ones(2), async_op=True).wait("a"), TypeError),
        (lambda: dist.get_backend(3), ValueError),
    ],
)
def test_wrong_arguments_raise_what_they_raise_in_pytorch(call, kind, one_of_two):
    with pytest.raises(kind) as info:
        call()
    assert [each for each in (ValueError, RuntimeError, TypeError, LookupError) if isinstance(info.value, each)] == [
        LookupError if kind is IndexError else kind
    ]


@pytest.mark.parametrize("name", ["cpu:gloo", "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo", "CPU:gloo,cuda:gloo"])
def test_backends_of_several_devices_are_told_as_they_were_asked_for(name, tmp_path):
    dist.init_process_group(name, f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        parts = dist.new_group([0]), dist.new_group([0], backend=name), dist.split_group(split_ranks=[[0]])
        assert {dist.get_backend(group) for group in (None, *parts)} == {name.lower()}
        assert dist.get_backend_config() == name.lower()
        assert dist.group.WORLD.name() == "shm"
    finally:
        dist.destroy_process_group()


def test_ranks_of_the_default_group_are_those_of_the_job(one_of_two):
    assert dist.get_group_rank(dist.group.WORLD, 7) == dist.get_global_rank(dist.group.WORLD, 7) == 7
