"""Who is missing at a barrier is told: by the group's first rank, and, in debugging, before each collective."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft.distributed import run_threads

SOON = timedelta(seconds=0.2)


def errors_of(call, here, nprocs=3):
    """What `call()` raises on the ranks that are `here`; the others come when these are done."""
    done = threading.Barrier(nprocs)

    def rank(me):
        dist.init_process_group("threads")
        text = None
        if me in here:
            with pytest.raises(RuntimeError) as raised:
                call()
            text = str(raised.value)
        done.wait(60)
        return text

    return run_threads(rank, nprocs=nprocs)


def test_the_first_rank_tells_who_is_missing():
    first, missing, third = errors_of(lambda: dist.monitored_barrier(timeout=SOON), {0, 2})
    assert missing is None
    assert first.splitlines() == [
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms",
        "monitored_barrier, rank 0: Timed out waiting 200ms for rank 1; see what holds it up, or allow more time",
    ]
    assert third.startswith(
        "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
        "Please check rank 0 logs for faulty rank.\nmonitored_barrier, rank 2: rank 0 gave up: "
    )


@pytest.mark.parametrize(
    ("wait_all_ranks", "text"),
    [
        (False, "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms\n"),
        (True, "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 200 ms\n"),
    ],
)
def test_all_that_are_missing(wait_all_ranks, text):
    def call():
        dist.group.WORLD.monitored_barrier(SOON, wait_all_ranks=wait_all_ranks)

    first, *_ = errors_of(call, {0})
    assert first.startswith(text)
    assert "Timed out waiting 200ms for ranks 1, 2;" in first


def test_without_any_time():
    first, *_ = errors_of(lambda: dist.group.WORLD.monitored_barrier(timedelta(0)), {0})
    assert first.startswith("Rank 0 timed out in monitoredBarrier after 0 ms.\n")


def test_the_timeout_is_the_first_ranks():
    late = threading.Event()

    def rank(me):
        dist.init_process_group("threads")
        if not me:
            late.wait(0.5)
        dist.monitored_barrier(timeout=SOON)

    run_threads(rank, nprocs=3)


def test_ranks_of_the_job_are_told():
    def rank(me):
        dist.init_process_group("threads")
        group = dist.new_group([1, 2])
        if me == 1:
            with pytest.raises(RuntimeError, match=r"^\[Rank 1\]: Rank 2 failed to pass monitoredBarrier in 200 ms\n"):
                dist.monitored_barrier(group, SOON)
        dist.barrier()

    run_threads(rank, nprocs=3)


@pytest.fixture
def detail():
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    yield
    dist.set_debug_level(before)


@pytest.mark.usefixtures("detail")
@pytest.mark.parametrize("async_op", [False, True])
def test_in_detail_collectives_tell_who_is_missing(async_op):
    def call():
        dist.group.WORLD.set_timeout(SOON)
        work = dist.all_reduce(weft.ones(1), async_op=async_op)
        work.wait()

    first, second, _ = errors_of(call, {0, 1})
    assert first.startswith(
        "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 200 ms\nall_reduce, rank 0: Timed out "
    )
    assert second.startswith("Rank 1 successfully reached monitoredBarrier, but received errors")


@pytest.mark.usefixtures("detail")
def test_in_detail_results_are_the_same():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.full((2,), float(me))
        dist.all_reduce(x)
        listed = [None] * 2
        dist.all_gather_object(listed, me)
        with pytest.raises(
            RuntimeError, match="different operations: rank 0 called broadcast, rank 1 called all_reduce"
        ):
            dist.all_reduce(x) if me else dist.broadcast(x, 0)
        return x.tolist(), listed

    assert run_threads(rank) == [([1, 1], [0, 1])] * 2
