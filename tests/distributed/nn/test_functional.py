"""Collectives with derivatives: the derivative of a linear map is its transpose, over all ranks together."""

from __future__ import annotations

import pytest

import weft
import weft.distributed as dist
from weft.distributed import ReduceOp
from weft.distributed.nn import functional as D

SIZE = 3


def one(rank, at=0):
    return weft.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=weft.float64) * (rank + 1) + at


def whole(x):
    """One row to each rank."""
    return weighted(D.all_to_all_single(weft.empty(SIZE, 2, dtype=weft.float64), x))


def parted(x):
    """One row to each rank, and all others to rank 1."""
    most = len(x) - SIZE + 1
    taken = [most if dist.get_rank() == 1 else 1] * SIZE
    given = [most if rank == 1 else 1 for rank in range(SIZE)]
    return weighted(D.all_to_all_single(weft.empty(sum(taken), 2, dtype=weft.float64), x, taken, given))


def weighted(rows):
    return weft.arange(1.0, len(rows) + 1, dtype=weft.float64) @ rows


CASES = {
    "all_reduce": (lambda x: D.all_reduce(x[0]), 1),
    "average": (lambda x: D.all_reduce(x[0], ReduceOp.AVG), 1),
    "broadcast": (lambda x: D.broadcast(x[0], 1), 1),
    "reduce": (lambda x: D.reduce(x[0], 2) * (dist.get_rank() == 2), 1),
    "all_gather": (lambda x: D.all_gather(x[0]), 1),
    "gather": (lambda x: D.gather(x[0], 1), 1),
    "scatter": (lambda x: D.scatter(x, 1), SIZE),
    "reduce_scatter": (lambda x: D.reduce_scatter(weft.zeros_like(x[0]), x), SIZE),
    "reduce_scatter_average": (lambda x: D.reduce_scatter(weft.zeros_like(x[0]), x, ReduceOp.AVG), SIZE),
    "reduce_average": (lambda x: D.reduce(x[0], 0, ReduceOp.AVG) * (dist.get_rank() == 0), 1),
    "all_to_all": (lambda x: D.all_to_all([weft.zeros_like(t) for t in x], x), SIZE),
    "all_to_all_single": (lambda x: whole(weft.cat(x)[:SIZE]), 2),
    "all_to_all_single in parts": (lambda x: parted(weft.cat(x)), SIZE),
}


@pytest.mark.parametrize("name", CASES)
def test_the_derivative_is_the_transpose(name):
    call, count = CASES[name]

    def body(rank):
        dist.init_process_group("threads")
        inputs = [one(rank, at).requires_grad_() for at in range(count)]
        found = call(inputs)
        found = found if isinstance(found, tuple) else (found,)
        weights = [weft.sin(one(rank, 7.0 + at)) for at in range(len(found))]
        forward = sum((y * w).sum() for y, w in zip(found, weights, strict=True))
        forward.backward()
        backward = sum((x * x.grad).sum() for x in inputs)
        return forward.item(), backward.item()

    pairs = dist.run_threads(body, nprocs=SIZE)
    assert sum(f for f, _ in pairs) == pytest.approx(sum(b for _, b in pairs), rel=1e-12)
    assert any(b for _, b in pairs)


def test_derivatives_of_derivatives():
    def body(rank):
        dist.init_process_group("threads")
        x = weft.tensor(rank + 1.0, dtype=weft.float64, requires_grad=True)
        (first,) = weft.autograd.grad(D.all_reduce(x * x * x), x, create_graph=True)
        first.backward()
        return first.item(), x.grad.item()

    assert dist.run_threads(body) == [(2 * 3 * 1, 2 * 6 * 1), (2 * 3 * 4, 2 * 6 * 2)]
