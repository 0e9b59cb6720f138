"""Lists of tensors of several shapes, and of more than there are ranks."""

from __future__ import annotations

import pytest

import weft
import weft.distributed as dist
from weft.distributed import run_threads


def in_job(call):
    def rank(me):
        dist.init_process_group("threads")
        return call(me)

    return run_threads(rank, nprocs=3)


def rows(count, value=0.0):
    return weft.full((count, 2), float(value))


@pytest.mark.parametrize("async_op", [False, True])
def test_gathered_by_all(async_op):
    def call(me):
        found = [rows(rank) for rank in range(3)]
        work = dist.all_gather(found, rows(me, me), async_op=async_op)
        if async_op:
            work.wait()
        return [x.tolist() for x in found]

    assert in_job(call) == [[[], [[1, 1]], [[2, 2], [2, 2]]]] * 3


@pytest.mark.parametrize(("op", "expected"), [(dist.ReduceOp.SUM, 3), (dist.ReduceOp.MAX, 2), (dist.ReduceOp.AVG, 1)])
def test_reduced_and_scattered(op, expected):
    def call(me):
        found = rows(me + 1)
        dist.reduce_scatter(found, [rows(rank + 1, me) for rank in range(3)], op)
        return found.tolist()

    assert in_job(call) == [[[expected] * 2] * (rank + 1) for rank in range(3)]


def test_several_gathered_by_all():
    def call(me):
        found = [[rows(rank + 1), rows(1)] for rank in range(3)]
        future = dist.all_gather_coalesced(found, [rows(me + 1, me), rows(1, 5)], async_op=True)
        assert len(future.wait()) == 6
        return [x.tolist() for x in found[2]]

    assert in_job(call) == [[[[2, 2]] * 3, [[5, 5]]]] * 3


def test_several_reduced_are_a_future_of_them():
    def call(me):
        given = [rows(1, me), rows(2, me)]
        found = dist.all_reduce_coalesced(given, async_op=True).wait()
        assert [x is y for x, y in zip(found, given, strict=True)] == [True, True]
        return [x[0, 0].item() for x in found]

    assert in_job(call) == [[3, 3]] * 3


def test_this_ranks_shape_must_be_right():
    def call(me):
        with pytest.raises(
            RuntimeError, match=r"tensor_list\[\d\] has shape \[1, 2\], and this rank's tensor \[4, 2\]"
        ):
            dist.all_gather([rows(1) for _ in range(3)], rows(4))
        with pytest.raises(RuntimeError, match=rf"input_list\[{me}\] has shape \[{me}, 2\], and this rank's tensor"):
            dist.reduce_scatter(rows(4), [rows(rank) for rank in range(3)])
        with pytest.raises(RuntimeError, match="`tensor_list` has 4 tensors, but the group has 3 ranks"):
            dist.all_gather([rows(1) for _ in range(4)], rows(1))
        with pytest.raises(
            ValueError, match=r"^Invalid usage of tensors with different dtypes: in all_gather, tensor_l"
        ):
            dist.all_gather([rows(1).double() for _ in range(3)], rows(1))

    in_job(call)


def test_lists_of_objects_may_be_longer():
    def call(me):
        every, some = [None, None, None, "left"], [None, None, None, "left"]
        dist.all_gather_object(every, me)
        dist.gather_object(me, some if me == 1 else None, dst=1)
        with pytest.raises(IndexError, match="`object_list` must be a list with a place for each of the 3 ranks"):
            dist.all_gather_object([None] * 2, me)
        return every, some

    found = in_job(call)
    assert [every for every, _ in found] == [[0, 1, 2, "left"]] * 3
    assert found[1][1] == [0, 1, 2, "left"]
