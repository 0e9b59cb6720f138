"""The cases of conformance under each backend, and what callers get wrong."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from functools import partial

import pytest

import weft
import weft.distributed as dist
from tests.distributed import conformance
from tests.distributed.conformance import join_again, joined, left
from tests.distributed.processes import Job, mpiexec, needs_mpi

many = partial(pytest.param, marks=pytest.mark.soak)  # up to half a minute each


@pytest.mark.parametrize("size", [1, 2, many(3)])
@pytest.mark.parametrize("case", conformance.case)
def test_threads_conform(case, size):
    dist.run_threads(conformance.run, (case, "threads"), nprocs=size)


def test_threads_join_again():
    def body(rank):
        joined("threads")
        left()
        join_again("threads")

    dist.run_threads(body, nprocs=2)


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """The ranks of a job, who meet again at its end and leave nothing."""
    backend, size = request.param
    folders = []

    def new_folder():
        folders.append(tmp_path_factory.mktemp("job"))
        return folders[-1]

    def commands(folder):
        command = [sys.executable, "-m", conformance.__name__, backend]
        if backend == "mpi":
            return [mpiexec(size, *command[1:])]
        return [[*command, str(rank), str(size), f"file://{folder}/store"] for rank in range(size)]

    job = Job(commands, size, new_folder)
    yield job
    job.end()
    assert not [path for folder in folders for path in folder.iterdir() if path.suffix != ".log"]


@pytest.mark.parametrize(
    "ranks",
    [
        ("shm", 2),
        ("tcp", 2),
        *(many(one) for one in (("shm", 3), ("shm", 4), ("tcp", 3), ("xla", 2), ("xla", 4))),
        *(pytest.param(("mpi", size), marks=[pytest.mark.soak, needs_mpi]) for size in (2, 4)),
    ],
    indirect=True,
    ids=lambda given: f"{given[0]}-{given[1]}",
)
@pytest.mark.parametrize("case", conformance.case)
def test_processes_conform(ranks, case):
    ranks.run(case)


def in_threads(body, size=2):
    def run(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=20))
        return body(rank)

    return dist.run_threads(run, nprocs=size)


def test_calls_that_differ_are_told_on_all_ranks():
    def body(rank):
        x = weft.zeros(2 + rank)
        with pytest.raises(RuntimeError, match=r"rank 0 called all_reduce\(sum\) of 2 .*, rank 1 .* of 3 f"):
            dist.all_reduce(x)
        dist.barrier()  # the ranks are still in step
        with pytest.raises(RuntimeError, match=r"rank 0 called barrier, rank 1 called all_reduce\(sum\) of 3 "):
            dist.all_reduce(x) if rank else dist.barrier()
        with pytest.raises(RuntimeError, match="cannot be used any more"):
            dist.barrier()

    in_threads(body)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: dist.all_reduce([x]), TypeError, "all_reduce: Invalid function argument. Expected"),
        (lambda x: dist.all_reduce(x, "sum"), TypeError, "argument 'op' must be a ReduceOp"),
        (lambda x: dist.broadcast(x, 7), RuntimeError, "invalid root rank: src must be from 0 to 1, but got 7"),
        (lambda x: dist.broadcast(x), ValueError, "give one of `src`, a rank in the job, and `group_src`"),
        (lambda x: dist.all_gather([x], x), RuntimeError, "`tensor_list` has 1 tensors, but the group has 2 ranks"),
        (lambda x: dist.all_gather([x, x.long()], x), ValueError, r"tensor_list\[1\] has .*int64"),
        (lambda x: dist.all_gather([x[:1]] * 2, x), RuntimeError, r"tensor_list\[0\] has shape \[1\], and this rank"),
        (lambda x: dist.all_gather_into_tensor(x, x), RuntimeError, r"it must be \[2, 2\] or \[4\]"),
        (lambda x: dist.all_to_all_single(x[:1], x[:1]), RuntimeError, "does not divide equally across group size"),
        (lambda x: dist.new_group([0, 0]), ValueError, "contain one twice"),
        (lambda x: dist.new_group([0, 5]), ValueError, "rank 5 is not one of the 2 ranks of the job"),
        (lambda x: dist.init_process_group("threads"), ValueError, "default process group twice"),
        (lambda x: dist.all_reduce(x, group="world"), ValueError, "group must be a ProcessGroup or None, not str"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_sent(call, kind, text):
    def body(rank):
        with pytest.raises(kind, match=text):
            call(weft.ones(2))
        x = weft.ones(1)
        dist.all_reduce(x)  # the group is as it was
        assert x.item() == 2

    in_threads(body)


def test_a_rank_outside_of_a_group_is_warned():
    def body(rank):
        group = dist.new_group([0])
        if rank == 1:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            with pytest.warns(UserWarning, match="Running all_reduce on global rank 1 which does not belong"):
                assert dist.all_reduce(weft.ones(1), group=group) is None
            assert dist.get_rank(group) == dist.get_world_size(group) == -1

    in_threads(body)


def test_mistakes_raise_what_pytorch_raises():
    def body(rank):
        dist.init_process_group("threads")
        group, x = dist.new_group([0, 2]), weft.ones(1)
        if rank == 1:
            for call in (dist.broadcast, dist.reduce, dist.isend, dist.recv):
                with pytest.raises(ValueError, match="Invalid process group specified"):
                    call(x, 0, group=group)
            return
        for call in (lambda: dist.broadcast(x, 1, group), lambda: dist.get_group_rank(group, 1)):
            with pytest.raises(ValueError, match=r"Global rank 1 is not part of group 'group 1'") as caught:
                call()
            assert not isinstance(caught.value, (TypeError, RuntimeError))
        for options in ({"src": 9}, {"src": -1}, {"group_src": 3}):
            with pytest.raises(RuntimeError, match="invalid root rank"):
                dist.broadcast(x, **options)
        for call in (dist.all_reduce, dist.monitored_barrier, dist.get_rank, dist.get_process_group_ranks):
            with pytest.raises(ValueError, match="Invalid process group specified"):
                call(x, group=5) if call is dist.all_reduce else call(5)
        with pytest.raises(ValueError, match="p2p_op_list"):
            dist.batch_isend_irecv([5])
        with pytest.raises(ValueError, match="cannot be empty"):
            dist.new_subgroups_by_enumeration([])
        with pytest.raises(TypeError, match="a ReduceOp is one of SUM"):
            dist.ReduceOp("mean")

    dist.run_threads(body, nprocs=3)
    with pytest.raises(AssertionError, match="both init_method and store"):
        dist.init_process_group("gloo", "env://", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(AssertionError, match="world_size must be positive if using store"):
        dist.init_process_group("gloo", store=dist.HashStore())
    with pytest.raises(TypeError, match="DebugLevel"):
        dist.set_debug_level("DETAIL")


def test_the_first_error_of_threads_is_raised_though_others_end_first():
    ended = threading.Barrier(2)

    def body(rank):
        dist.init_process_group("threads")
        try:
            if rank:
                raise ValueError("the cause")
            dist.all_reduce(weft.ones(1))
        finally:
            dist.destroy_process_group()
            ended.wait(60)

    with pytest.raises(ValueError, match="the cause"):
        dist.run_threads(body)


def test_without_a_group_the_error_names_what_to_call():
    with pytest.raises(ValueError, match="please make sure to call init_process_group"):
        dist.all_reduce(weft.ones(1))
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"backend": "smoke"}, AssertionError, "Unknown backend type 'smoke'; known are"),
        ({"timeout": 5}, TypeError, r"argument to be of type datetime\.timedelta, got 5"),
        ({"timeout": timedelta(0)}, ValueError, "timeout must be positive"),
        ({"init_method": "http://x"}, RuntimeError, "No rendezvous handler for http://"),
        ({"init_method": "tcp://x"}, ValueError, "must name a host and a port"),
        ({"init_method": "file:///tmp/x"}, ValueError, "needs the rank"),
        (
            {"rank": 2, "world_size": 2, "store": dist.HashStore()},
            RuntimeError,
            "rank must be from 0 to world_size - 1",
        ),
        ({}, ValueError, "environment variable RANK expected, but not set"),
    ],
)
def test_joining_with_bad_arguments(options, kind, text, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(kind, match=text):
        dist.init_process_group(**options)
    assert not dist.is_initialized()


def test_a_rank_that_does_not_come_is_named():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match=r"rank 0 waited 0\.2 s for ranks 1, 2 of 3"):
        dist.init_process_group("shm", store=store, rank=0, world_size=3, timeout=timedelta(seconds=0.2))


def test_two_of_one_rank_and_other_sizes_are_told():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match="waited"):
        dist.init_process_group("shm", store=store, rank=0, world_size=2, timeout=timedelta(seconds=0.1))

    def body(rank):
        dist.init_process_group(
            "threads", store=store, rank=0, world_size=2, timeout=timedelta(seconds=1), group_name="twice"
        )

    with pytest.raises(RuntimeError, match="two processes came as rank 0"):
        dist.run_threads(body, nprocs=2)

    def sizes(rank):
        dist.init_process_group(
            "threads", store=store, rank=rank, world_size=2 + rank, timeout=timedelta(seconds=2), group_name="sizes"
        )

    with pytest.raises(RuntimeError, match=r"rank 0 has world_size=2 and rank 1 world_size=3|waited"):
        dist.run_threads(sizes, nprocs=2)


def test_ranks_draw_their_own_random_numbers():
    def body(rank):
        weft.manual_seed(rank // 2)
        return weft.rand(3).tolist()

    before = weft.get_rng_state().tolist()
    found = dist.run_threads(body, nprocs=4)
    assert found[0] == found[1] != found[2] == found[3]
    assert weft.get_rng_state().tolist() == before


def test_results_have_the_names_of_what_this_rank_has_given():
    def body(rank):
        dist.init_process_group("threads")
        x = weft.ones(2, 3, names=("row", "column"))
        gathered = [weft.zeros(2, 3) for _ in range(2)]
        dist.all_gather(gathered, x)
        whole, stacked, reduced = weft.zeros(4, 3), weft.zeros(2, 2, 3), weft.zeros(1, 3)
        dist.all_gather_into_tensor(whole, x)
        dist.all_gather_into_tensor(stacked, x)
        work = dist.reduce_scatter_tensor(reduced, x, async_op=True)
        work.wait()
        dist.all_reduce(x)
        kept = weft.zeros(2, 3, names=("a", "b"))
        dist.all_gather([kept, weft.zeros(2, 3)], x)
        return [t.names for t in (*gathered, whole, stacked, reduced, x, kept)]

    two = ("row", "column")
    assert dist.run_threads(body) == [[two, two, two, (None, *two), two, two, ("a", "b")]] * 2


@pytest.mark.parametrize("async_op", [False, True])
def test_sparse_tensors_are_summed(async_op):
    def rank(me):
        dist.init_process_group("threads")
        x = weft.sparse_coo_tensor([[me, 2, 2]], [[1.0 + me, 0], [2, 1], [2, 0]], (4, 2))
        work = dist.all_reduce(x, async_op=async_op)
        if async_op:
            work.wait()
        other = weft.sparse_coo_tensor([[0]], [1.0], (4 + me,))
        with pytest.raises(RuntimeError, match="Sparse dimensions do not match"):
            dist.all_reduce(other)
        return x.is_coalesced(), x._nnz(), x.to_dense().tolist()

    assert dist.run_threads(rank, nprocs=2) == [(True, 3, [[1, 0], [2, 0], [8, 2], [0, 0]])] * 2


def test_the_only_rank_exchanges_a_tensor_without_dims_with_itself():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.tensor(0.0)
        dist.all_to_all_single(x, weft.tensor(5.0))
        return x.item()

    assert dist.run_threads(rank, nprocs=1) == [5]
