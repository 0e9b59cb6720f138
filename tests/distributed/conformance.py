"""What every backend must do: cases that all ranks of a job run, under each of them.

`python -m tests.distributed.conformance BACKEND [RANK SIZE ADDRESS]` is a rank, by itself under `mpiexec`.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial

import numpy as np
import pytest

import weft
import weft.distributed as dist
from tests.distributed.processes import Cases, serve
from weft.distributed import ReduceOp
from weft.distributed import _functional_collectives as fc
from weft.distributed._reduce_op import PremulSum

case = Cases()
FLOATS = (weft.float32, weft.float64, weft.bfloat16, weft.float16)
INTEGERS = (weft.int64, weft.int32, weft.int16, weft.int8, weft.uint8)
TYPES = (*FLOATS, *INTEGERS, weft.complex64, weft.complex128, weft.bool)
SHAPES = ((3,), (2, 5), (), (0,), (1000, 17))


def value(rank, shape, dtype):
    """Small whole numbers, which every type adds without rounding; another one for each rank."""
    host = (np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape) + 3 * rank) % 5
    return weft.tensor(host).to(dtype)


def values(size, shape, dtype):
    return np.stack([value(rank, shape, dtype).to(_wide(dtype)).numpy() for rank in range(size)])


def _wide(dtype):
    return weft.complex128 if dtype.is_complex else weft.bool if dtype is weft.bool else weft.float64


def equal(found, expected):
    got = found.to(_wide(found.dtype)).numpy()
    np.testing.assert_array_equal(got, np.asarray(expected).reshape(got.shape).astype(got.dtype))


REDUCTIONS = {
    ReduceOp.SUM: np.sum,
    ReduceOp.PRODUCT: np.prod,
    ReduceOp.MIN: np.min,
    ReduceOp.MAX: np.max,
    ReduceOp.AVG: np.mean,
    ReduceOp.BAND: lambda x, axis: np.bitwise_and.reduce(x.astype(np.int64), axis),
    ReduceOp.BOR: lambda x, axis: np.bitwise_or.reduce(x.astype(np.int64), axis),
    ReduceOp.BXOR: lambda x, axis: np.bitwise_xor.reduce(x.astype(np.int64), axis),
}


def reductions_of(dtype):
    if dtype is weft.bool:
        return (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    if dtype.is_complex:
        return (ReduceOp.SUM,)
    every = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX)
    return (*every, ReduceOp.AVG) if dtype.is_floating_point else (*every, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


@case
def arguments_that_do_not_fit_leave_the_group_usable(rank, size):
    """One rank has another size than the others: all raise, and the next operation works."""
    odd = 1 if rank == size - 1 else 0
    ones = [weft.ones(2) for _ in range(size)]
    rooms = [weft.zeros(2 + odd) for _ in range(size)]
    calls = [
        lambda: dist.all_to_all(rooms, ones),
        lambda: dist.all_to_all_single(weft.zeros(size * (2 + odd)), weft.ones(2 * size)),
        lambda: dist.all_to_all([weft.zeros(2) for _ in range(size)], [weft.ones(2 + odd) for _ in range(size)]),
        lambda: dist.all_reduce(weft.ones(2 + odd)),
        lambda: dist.all_reduce(weft.ones(2), ReduceOp.MAX if odd else ReduceOp.SUM),
        lambda: dist.broadcast(weft.ones(2 + odd), 0),
        lambda: dist.all_gather_into_tensor(weft.ones(size * (2 + odd)), weft.ones(2 + odd)),
        lambda: dist.all_gather(rooms, weft.ones(2 + odd)),
        lambda: dist.reduce_scatter_tensor(weft.ones(2 + odd), weft.ones(size * (2 + odd))),
        lambda: dist.all_to_all(rooms, ones, async_op=True).wait(),
    ]
    for call in calls if size > 1 else ():
        with pytest.raises(dist.DistBackendError, match=r"elements|the ranks call different operations"):
            call()
        x = weft.ones(3)
        dist.all_reduce(x)
        equal(x, [size] * 3)


@case
def reductions_of_all_types(rank, size):
    for dtype in TYPES:
        for op in reductions_of(dtype):
            shape = (2, 5)
            x = value(rank, shape, dtype)
            dist.all_reduce(x, op)
            expected = REDUCTIONS[op](values(size, shape, dtype), axis=0)
            if op is ReduceOp.AVG:
                np.testing.assert_allclose(x.double().numpy(), expected, rtol=2 * weft.finfo(dtype).eps)
            else:
                equal(x, expected)


@case
def all_types_are_moved(rank, size):
    for dtype in TYPES:
        x = value(rank, (3,), dtype)
        every = values(size, (3,), dtype)
        y = x.clone()
        dist.broadcast(y, size - 1)
        equal(y, every[size - 1])
        parts = [weft.zeros_like(x) for _ in range(size)]
        dist.all_gather(parts, x)
        dist.all_to_all(parts, [value(rank + other, (3,), dtype) for other in range(size)])
        for other, part in enumerate(parts):
            equal(part, value(rank + other, (3,), dtype).to(_wide(dtype)).numpy())
    x = weft.tensor([-0.0, float("inf"), float("nan")])
    dist.broadcast(x, size - 1)
    assert (1 / x).tolist()[:2] == [-float("inf"), 0]
    assert x.isnan().tolist() == [False, False, True]


@case
def large_and_scaled_sums(rank, size):
    for dtype in (weft.float32, weft.bfloat16):
        x = value(rank, (50_001,), dtype)
        dist.all_reduce(x)
        equal(x, values(size, (50_001,), dtype).sum(0))
    x = weft.full((4,), 2.0)
    dist.all_reduce(x, PremulSum(rank + 1.0))
    equal(x, [size * (size + 1.0)] * 4)


@case
def tensors_of_all_shapes(rank, size):
    for shape in SHAPES:
        x = value(rank, shape, weft.float32)
        every = values(size, shape, weft.float32)
        total = x.clone()
        dist.all_reduce(total)
        equal(total, every.sum(0))
        for root in range(size):
            y = x.clone()
            dist.broadcast(y, root)
            equal(y, every[root])
            y = x.clone()
            dist.reduce(y, root)
            equal(y, every.sum(0) if rank == root else every[rank])
            parts = [weft.zeros_like(x) for _ in range(size)] if rank == root else None
            dist.gather(x, parts, root)
            for other, part in enumerate(parts or ()):
                equal(part, every[other])
            given = [value(10 * other, shape, weft.float32) for other in range(size)] if rank == root else None
            dist.scatter(y, given, root)
            equal(y, value(10 * rank, shape, weft.float32).numpy())
        parts = [weft.zeros_like(x) for _ in range(size)]
        dist.all_gather(parts, x)
        for other, part in enumerate(parts):
            equal(part, every[other])


@case
def one_tensor_for_all_ranks(rank, size):
    x = value(rank, (2, 3), weft.float64)
    every = values(size, (2, 3), weft.float64)
    for shape in ((2 * size, 3), (size, 2, 3)):
        whole = weft.zeros(shape, dtype=weft.float64)
        dist.all_gather_into_tensor(whole, x)
        equal(whole, every.reshape(shape))
        part = weft.zeros(2, 3, dtype=weft.float64)
        dist.reduce_scatter_tensor(part, whole)
        equal(part, size * every[rank])
    own = weft.zeros(2, 3)
    dist.reduce_scatter(own, [value(rank + other, (2, 3), weft.float32) for other in range(size)])
    equal(own, sum(value(other + rank, (2, 3), weft.float32).numpy() for other in range(size)))


@case
def lists_of_uneven_tensors(rank, size):
    found = [weft.zeros(other + 1, 2) for other in range(size)]
    dist.all_gather(found, value(rank, (rank + 1, 2), weft.float32))
    for other, x in enumerate(found):
        equal(x, value(other, (other + 1, 2), weft.float32).numpy())
    own = weft.zeros(rank + 1)
    dist.reduce_scatter(own, [weft.full((other + 1,), float(rank)) for other in range(size)])
    equal(own, [size * (size - 1) / 2] * (rank + 1))


@case
def all_to_all(rank, size):
    given = [weft.full((rank + 1, other + 1), 10.0 * rank + other) for other in range(size)]
    found = [weft.zeros(other + 1, rank + 1) for other in range(size)]
    dist.all_to_all(found, given)
    for other, x in enumerate(found):
        equal(x, np.full((other + 1, rank + 1), 10.0 * other + rank))
    sent = weft.cat([weft.full((other + 1,), 10.0 * rank + other) for other in range(size)])
    got = weft.zeros(size * (rank + 1))
    dist.all_to_all_single(got, sent, [rank + 1] * size, [other + 1 for other in range(size)])
    equal(got, np.repeat(10.0 * np.arange(size) + rank, rank + 1))


@case
def operations_that_are_waited_for(rank, size):
    xs = [value(rank + at, (100,), weft.float32) for at in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for at, (x, work) in enumerate(zip(xs, works, strict=True)):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        equal(x, sum(value(other + at, (100,), weft.float32).numpy() for other in range(size)))
    x = value(rank, (7,), weft.float64)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda future: 2 * future.value()[0])
    equal(doubled.wait(), 2 * values(size, (7,), weft.float64).sum(0))


@case
def views_and_leaves(rank, size):
    base = weft.zeros(3, 4)
    base[1] = rank + 1
    dist.all_reduce(base[1])
    equal(base, [[0] * 4, [size * (size + 1) / 2] * 4, [0] * 4])
    leaf = weft.full((2,), float(rank), requires_grad=True)
    dist.broadcast(leaf, size - 1)
    equal(leaf.detach(), [size - 1] * 2)
    assert leaf.requires_grad
    assert leaf.is_leaf


@case
def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * (100 * rank)})
    assert found == [{"rank": other, "text": "x" * (100 * other)} for other in range(size)]
    listed = [f"from {rank}", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, src=0)
    assert listed == ["from 0", 0]
    gathered = [None] * size if rank == size - 1 else None
    dist.gather_object(("r", rank), gathered, dst=size - 1)
    assert gathered is None or gathered == [("r", other) for other in range(size)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


@case
def groups(rank, size):
    even = dist.new_group(range(0, size, 2))
    odd = dist.new_group(range(1, size, 2)) if size > 1 else None
    mine = even if rank % 2 == 0 else odd
    x = weft.full((2,), float(rank))
    dist.all_reduce(x, group=mine)
    equal(x, [sum(range(rank % 2, size, 2))] * 2)
    assert dist.get_world_size(mine) == len(range(rank % 2, size, 2))
    assert dist.get_rank(mine) == rank // 2
    assert dist.get_process_group_ranks(mine) == list(range(rank % 2, size, 2))
    dist.destroy_process_group(mine)


@case
def groups_at_once(rank, size):
    """Operations of two groups of the same ranks are under way together; each finds its own."""
    group = dist.new_group(range(size))
    xs = [value(rank + at, (4,), weft.float32) for at in range(8)]
    works = [dist.all_reduce(x, group=group if at % 2 else None, async_op=True) for at, x in enumerate(xs)]
    for at, (x, work) in enumerate(zip(xs, works, strict=True)):
        work.wait()
        equal(x, sum(value(other + at, (4,), weft.float32).numpy() for other in range(size)))
    dist.destroy_process_group(group)


@case
def messages(rank, size):
    if size < 2:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    large = weft.full((500_000,), float(rank))
    found = weft.zeros(500_000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, large, after), dist.P2POp(dist.irecv, found, before)]):
        work.wait()
    equal(found, np.full(500_000, float(before)))
    if rank == 0:
        for tag in (5, 6):
            dist.send(weft.tensor([float(tag)]), 1, tag=tag)
    elif rank == 1:
        x = weft.zeros(1)
        for tag in (6, 5):
            assert dist.recv(x, 0, tag=tag) == 0
            equal(x, [tag])
    dist.barrier()


@case
def a_captured_function_exchanges_what_it_exchanges_uncaptured(rank, size):
    """Large and small, independent and not, with the derivatives, and between other collectives."""

    def function(x, y):
        whole = fc.all_gather_tensor_autograd(x * 2, 0, dist.group.WORLD)
        most = fc.all_reduce(y + 1, "max", dist.group.WORLD)
        total = fc.all_reduce(y * 2, "sum", dist.group.WORLD)
        fc.broadcast(x, 0, dist.group.WORLD)
        return whole.square().sum(), total + most

    compiled = weft.compile(function)
    for at in range(3):
        x, y = weft.full((2,), rank + at, dtype=weft.float64, requires_grad=True), weft.full((200_000,), rank + 1.0)
        loss, sums = compiled(x, y)
        loss.backward()
        ranks = np.arange(size) + at
        equal(loss.detach(), 8 * (ranks**2).sum())
        equal(x.grad, [8.0 * size * (rank + at)] * 2)
        equal(sums, [size * (size + 1) + size + 1] * len(y))
        meeting = weft.full((1,), float(rank))
        dist.all_reduce(meeting)
        equal(meeting, [sum(range(size))])
    assert compiled._runs == 1


def joined(backend, rank=-1, address=None, size=-1):
    dist.init_process_group(backend, address, timedelta(seconds=60), rank=rank if address else -1, world_size=size)
    assert dist.is_initialized()
    assert dist.get_backend() == backend
    assert rank in (-1, dist.get_rank())
    return dist.get_rank(), dist.get_world_size()


def left():
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def join_again(backend, rank=-1, address=None, world_size=-1):
    """All ranks have left, and meet once more."""
    _, size = joined(backend, rank, address and f"{address}-again", world_size)
    x = weft.ones(2)
    dist.all_reduce(x)
    equal(x, [size] * 2)
    left()


def run(rank, case, backend):
    """Join, run a case, and leave."""
    case(*joined(backend, rank))
    left()


def main():
    _, backend, *place = sys.argv
    given = (int(place[0]), place[2], int(place[1])) if place else (-1, None, -1)
    rank, size = joined(backend, *given)
    serve(f"rank {rank}", {one.__name__: partial(one, rank, size) for one in case})
    left()
    join_again(backend, *given)


if __name__ == "__main__":
    main()
