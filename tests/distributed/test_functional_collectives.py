"""Collectives by PyTorch's functional names."""

from __future__ import annotations

import pytest

import weft
import weft.distributed as dist
from weft.distributed import _functional_collectives as fc


def in_threads(call):
    """What `call(x, group)` gives on each of two ranks, and the gradient of its sum of squares."""

    def rank(me):
        dist.init_process_group("threads")
        x = (weft.arange(4.0).reshape(2, 2) + 10 * me).requires_grad_()
        found = fc.wait_tensor(call(x, dist.group.WORLD))
        found.square().sum().backward()
        return found.tolist(), (x.grad / 2).tolist()

    return dist.run_threads(rank)


@pytest.mark.parametrize(
    ("call", "results", "gradients"),
    [
        (
            lambda x, group: fc.all_reduce(x, "sum", group),
            [[[10, 12], [14, 16]]] * 2,
            [[[20, 24], [28, 32]]] * 2,
        ),
        (
            lambda x, group: fc.broadcast(x, 1, group),
            [[[10, 11], [12, 13]]] * 2,
            [[[0, 0], [0, 0]], [[20, 22], [24, 26]]],
        ),
        (
            lambda x, group: fc.all_gather_tensor(x, 1, group),
            [[[0, 1, 10, 11], [2, 3, 12, 13]]] * 2,
            [[[0, 2], [4, 6]], [[20, 22], [24, 26]]],
        ),
        (
            lambda x, group: fc.reduce_scatter_tensor(x, "avg", 1, group),
            [[[5], [7]], [[6], [8]]],
            [[[2.5, 3], [3.5, 4]]] * 2,
        ),
        (
            lambda x, group: fc.all_to_all_single(x, None, None, group),
            [[[0, 1], [10, 11]], [[2, 3], [12, 13]]],
            [[[0, 1], [2, 3]], [[10, 11], [12, 13]]],
        ),
    ],
)
def test_results_and_gradients(call, results, gradients):
    assert in_threads(call) == list(zip(results, gradients, strict=True))


def test_tensors_without_data_give_the_sizes_of_results():
    def rank(me):
        dist.init_process_group("threads")
        group = dist.group.WORLD
        x = weft.empty(4, 2, device="meta", requires_grad=True)
        results = [
            fc.all_reduce(x, "avg", group),
            fc.broadcast(x, 1, group),
            fc.all_gather_tensor(x, 0, group),
            fc.all_gather_tensor(x, 1, group),
            fc.reduce_scatter_tensor(x, "sum", 0, group),
            fc.reduce_scatter_tensor(x, "avg", 1, group),
            fc.all_to_all_single(x, None, None, group),
            fc.all_to_all_single(x, [1, 4], [2, 2], group),
        ]
        assert all(result.is_meta for result in results)
        sum(result.sum() for result in results).backward()
        assert x.grad.is_meta
        return [tuple(result.shape) for result in results]

    shapes = [(4, 2), (4, 2), (8, 2), (4, 4), (2, 2), (4, 1), (4, 2), (5, 2)]
    assert dist.run_threads(rank) == [shapes] * 2


def test_arguments_are_checked():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(3)
        with pytest.raises(ValueError, match=r"^reduceOp must be one of sum, avg, .*, but got 'add'$"):
            fc.all_reduce(x, "add", dist.group.WORLD)
        with pytest.raises(RuntimeError, match=r"^input dimension 0 \(3\) must be a multiple of group_size 2$"):
            fc.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)

    dist.run_threads(rank)


def test_groups_are_named_in_several_ways():
    def rank(me):
        dist.init_process_group("threads")
        mesh = dist.init_device_mesh("cpu", (1, 2))
        x = weft.ones(2)
        groups = (dist.group.WORLD, dist.group.WORLD.group_name, (mesh, 1), dist.init_device_mesh("cpu", (2,)))
        assert [fc.all_reduce(x, "sum", group).tolist() for group in groups] == [[2, 2]] * 4
        assert fc.all_gather_tensor(x, 0, (mesh, 0)).tolist() == [1, 1]
        assert fc.broadcast(x + me, 1, [0, 1]).tolist() == [2, 2]
        with pytest.raises(
            AssertionError, match=r"^Only 1D mesh is supported, pass in \(DeviceMesh, int\) for a dim of"
        ):
            fc.all_reduce(x, "sum", mesh)
        with pytest.raises(ValueError, match=r"^Invalid tuple for group must be \(DeviceMesh, int\), got \(0, 1\)$"):
            fc.all_reduce(x, "sum", (0, 1))
        with pytest.raises(ValueError, match=r"^this process is in no group named 'other'; its groups are"):
            fc.all_reduce(x, "sum", "other")

    with pytest.warns(FutureWarning, match=r"^ranks as a group are deprecated: give a process group"):
        dist.run_threads(rank)
