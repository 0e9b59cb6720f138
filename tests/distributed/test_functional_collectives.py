"""Collectives by PyTorch's functional names."""

from __future__ import annotations

import pytest

import weft
import weft.distributed as dist
from weft.distributed import _functional_collectives as fc
from weft.distributed.tensor.debug import CommDebugMode


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
        with pytest.raises(RuntimeError, match=r"^Unrecognized reduce_op: add; reduceOp must be one of sum, avg, "):
            fc.all_reduce(x, "add", dist.group.WORLD)
        with pytest.raises(AssertionError, match=r"^input dimension 0 \(3\) must be a multiple of group_size 2$"):
            fc.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)
        with pytest.raises(AssertionError, match=r"^Length of scatter_dim \(1\) must equal length of inputs \(2\)$"):
            fc.reduce_scatter_tensor_coalesced([x, x], "sum", [0], dist.group.WORLD)
        with pytest.raises(AssertionError, match=r"must either be specified together or both set to None$"):
            fc.all_to_all_single(x, [1, 2], None, dist.group.WORLD)
        with pytest.raises(AssertionError, match=r"^Can't remap async version of inplace op to functional collective$"):
            fc.all_reduce_inplace(x, async_op=True)
        with pytest.raises(
            ValueError, match=r"^src_dst has the target of each of the 2 ranks of the group, but got \[1\]$"
        ):
            fc.permute_tensor(x, [1], dist.group.WORLD)

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
        with pytest.raises(RuntimeError, match=r"^this process is in no group named 'other'; its groups are"):
            fc.all_reduce(x, "sum", "other")

    with pytest.warns(FutureWarning, match=r"^ranks as a group are deprecated: give a process group"):
        dist.run_threads(rank)


def test_results_can_be_waited_for():
    def rank(me):
        dist.init_process_group("threads")
        x = weft.ones(2, requires_grad=True)
        y = fc.all_reduce(x, "sum", dist.group.WORLD)
        assert isinstance(y, fc.AsyncCollectiveTensor)
        assert y.completed
        for plain in (y.wait(), y.trigger_wait(), y.elem, fc.wait_tensor(y), y + 0):
            assert type(plain) is weft.Tensor
            assert plain.tolist() == [2, 2]
        assert fc.wait_tensor(x) is x
        assert repr(y) == "AsyncCollectiveTensor(tensor([2., 2.]))"
        y.wait().sum().backward()
        assert x.grad.tolist() == [2, 2]
        z = fc.all_reduce(x.detach(), "sum", dist.group.WORLD)
        z.wait().add_(1)
        assert z.tolist() == [3, 3]

    dist.run_threads(rank)


def grads_of(call, me, requires_grad):
    """The results of a call on two tensors, and the gradients of the sum of their squares."""
    xs = [weft.arange(4.0).reshape(2, 2) + 10 * me, weft.arange(2.0) - me]
    xs = [x.requires_grad_(requires_grad) for x in xs]
    results = call(xs)
    assert all(isinstance(y, fc.AsyncCollectiveTensor) for y in results)
    if requires_grad:
        sum(y.square().sum() for y in results).backward()
    return [y.tolist() for y in results], [x.grad.tolist() for x in xs if requires_grad]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    ("coalesced", "single"),
    [
        (lambda xs, g: fc.all_reduce_coalesced(xs, "sum", g), lambda x, g: fc.all_reduce(x, "sum", g)),
        (lambda xs, g: fc.all_reduce_coalesced(xs, "avg", g), lambda x, g: fc.all_reduce(x, "avg", g)),
        (lambda xs, g: fc.all_gather_into_tensor_coalesced(xs, g), lambda x, g: fc.all_gather_single(x, 0, g)),
        (
            lambda xs, g: fc.reduce_scatter_tensor_coalesced(xs, "sum", [x.ndim - 1 for x in xs], g),
            lambda x, g: fc.reduce_scatter_single(x, "sum", x.ndim - 1, g),
        ),
        (
            lambda xs, g: fc.reduce_scatter_tensor_coalesced(xs, "avg", [0, 0], g),
            lambda x, g: fc.reduce_scatter_single(x, "avg", 0, g),
        ),
    ],
)
def test_several_tensors_at_once(coalesced, single, requires_grad):
    def rank(me):
        dist.init_process_group("threads")
        group = dist.group.WORLD
        together = grads_of(lambda xs: coalesced(xs, group), me, requires_grad)
        assert together == grads_of(lambda xs: [single(x, group) for x in xs], me, requires_grad)

    dist.run_threads(rank)


def test_permuted_tensors():
    def rank(me):
        dist.init_process_group("threads")
        x = (weft.arange(4.0).reshape(2, 2) + 10 * me).requires_grad_()
        y = fc.permute_tensor(x, [1, 0], dist.group.WORLD)
        (y.square().sum() / 2).backward()
        none = fc.permute_tensor(x.detach(), [0, 0], dist.group.WORLD) if me else None
        if none is None:
            with pytest.raises(AssertionError):
                fc.all_to_all_single(x, [1], None, dist.group.WORLD)
            fc.permute_tensor(x.detach(), [0, 0], dist.group.WORLD)
        return y.tolist(), x.grad.tolist()

    numbers = [[[0, 1], [2, 3]], [[10, 11], [12, 13]]]
    assert dist.run_threads(rank) == [(numbers[1], numbers[0]), (numbers[0], numbers[1])]


def test_results_written_to_tensors():
    def rank(me):
        dist.init_process_group("threads")
        x, output = weft.arange(4.0) + 10 * me, weft.empty(8)
        assert fc.all_gather_tensor_inplace(output, x) is output
        assert output.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
        assert fc.reduce_scatter_tensor_inplace(weft.empty(2), x, "max").tolist() == [10 + 2 * me, 11 + 2 * me]
        assert fc.reduce_scatter_tensor_inplace(weft.empty(1, 2), x.view(1, 4), scatter_dim=1).tolist() == [
            [10 + 4 * me, 12 + 4 * me]
        ]
        assert fc.all_reduce_inplace(x.clone()).tolist() == [10, 12, 14, 16]
        assert fc.all_to_all_inplace(weft.empty(4), x).tolist() == [2 * me, 2 * me + 1, 10 + 2 * me, 11 + 2 * me]
        parts = fc.all_gather_inplace([weft.empty(2, 2), weft.empty(2, 2)], x.view(2, 2))
        assert [part.tolist() for part in parts] == [[[0, 1], [2, 3]], [[10, 11], [12, 13]]]
        with pytest.raises(AssertionError, match=r"^Remapping variable size all_gather is not yet supported$"):
            fc.all_gather_inplace([weft.empty(3), weft.empty(4)], x)
        sent, received = fc.batch_p2p_ops_inplace(
            ["isend", "irecv"], [1 - me] * 2, [0, 0], [x, weft.empty(4)], dist.group.WORLD.group_name
        )
        assert sent.numel() == 0
        assert received.tolist() == (weft.arange(4.0) + 10 * (1 - me)).tolist()
        alone = fc.isend_inplace(x, 1) if me == 0 else fc.irecv_inplace(weft.empty(4), 0)
        assert alone.wait().tolist() == ([0, 1, 2, 3] if me else [])
        with pytest.raises(ValueError, match=r"^Cannot specify both 'dst' and 'group_dst' args as per eager impl$"):
            fc.isend_inplace(x, 1, group_dst=1)

    dist.run_threads(rank)


def test_operators_by_name():
    def rank(me):
        dist.init_process_group("threads")
        x, group = weft.arange(4.0) + 10 * me, dist.group.WORLD.group_name
        native, legacy = weft.ops._c10d_functional, weft.ops.c10d_functional
        expected = [10.0, 12.0, 14.0, 16.0]
        assert native.wait_tensor(native.all_reduce(x, "sum", group)).tolist() == expected
        assert native.all_reduce.default(x, "sum", group).tolist() == expected
        assert legacy.all_reduce(x, "sum", "", [0, 1], 2).tolist() == expected
        assert native.all_gather_into_tensor(x, 2, group).shape == (8,)
        assert native.reduce_scatter_tensor(x, "sum", 2, group).tolist() == expected[2 * me :][:2]
        assert native.all_to_all_single(x, [2, 2], [2, 2], group).shape == (4,)
        assert [y.tolist() for y in native.all_reduce_coalesced([x, x], "sum", group)] == [expected] * 2
        written = x.clone()
        assert native.all_reduce_(written, "sum", group) is written
        assert written.tolist() == expected
        assert str(legacy.all_reduce) == "c10d_functional.all_reduce"
        assert legacy.all_reduce == native.all_reduce != legacy.broadcast
        with pytest.raises(AttributeError, match=r"^'_OpNamespace' 'c10d_functional' object has no attribute 'nope'$"):
            _ = legacy.nope
        with pytest.raises(TypeError, match=r"^torch.ops.c10d.allreduce_ is the name of a collective, for counts"):
            weft.ops.c10d.allreduce_([x])

    dist.run_threads(rank)


def test_operators_are_keys_of_counts():
    def rank(me):
        dist.init_process_group("threads")
        x, group, ops = weft.arange(4.0), dist.group.WORLD, weft.ops.c10d_functional
        with CommDebugMode() as counted:
            fc.all_reduce(x, "sum", group)
            fc.all_reduce_coalesced([x, x], "sum", group)
            fc.all_gather_into_tensor_coalesced([x, x], group)
            fc.reduce_scatter_tensor_coalesced([x], "sum", [0], group)
            fc.permute_tensor(x, [1, 0], group)
            dist.broadcast(x, 0)
        counts = counted.get_comm_counts()
        names = ("all_reduce", "all_reduce_coalesced", "all_gather_into_tensor_coalesced", "all_to_all_single")
        assert [counts[getattr(ops, name)] for name in names] == [1] * 4
        assert counts[ops.reduce_scatter_tensor_coalesced] == counts[weft.ops.c10d.broadcast_] == 1
        assert counts[ops.broadcast] == 0
        assert counted.get_total_counts() == 6

    dist.run_threads(rank)


def test_collectives_of_tensors_without_data_do_nothing():
    def rank(me):
        dist.init_process_group("threads")

        def empty(*size):
            return weft.empty(*size, device="meta")

        dist.broadcast(empty(2), 0)
        dist.all_gather([empty(2), empty(2)], empty(2))
        dist.reduce_scatter_tensor(empty(2), empty(4))
        work = dist.all_reduce(empty(2), async_op=True)
        assert dist.all_reduce(empty(2)) is None
        assert work.wait()
        assert work.is_completed()
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, empty(2), 1 - me), dist.P2POp(dist.irecv, empty(2), 1 - me)]
        )
        assert all(one.wait() for one in works)
        assert works[1].source_rank() == 1 - me
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
            dist.all_gather_into_tensor(weft.empty(4), empty(2))

    dist.run_threads(rank)
