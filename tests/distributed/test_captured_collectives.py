"""Collectives of host groups in functions of `weft.compile`: a replay repeats them, in their order."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft.distributed import _functional_collectives as fc
from weft.errors import CompileError

CALLS = 4


def in_threads(body, size=2):
    """What `body(rank)` returns on each rank of a job of threads."""

    def rank(me):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(me)

    return dist.run_threads(rank, nprocs=size)


def captures(function):
    """How often Python has run a compiled function."""
    return function._runs


def world():
    return dist.group.WORLD


DIFFERENTIABLE = {
    "all_reduce": lambda x: fc.all_reduce(x * x, "sum", world()).sin() + x,
    "all_reduce, averaged": lambda x: fc.all_reduce(x * x, "avg", world()),
    "all_gather": lambda x: fc.all_gather_tensor_autograd(x * 2, 0, world()) + 1,
    "all_gather along the second dim": lambda x: fc.all_gather_tensor(x.view(4, 2), 1, world()).cos(),
    "reduce_scatter": lambda x: fc.reduce_scatter_tensor_autograd(x.sin(), "sum", 0, world()) * 2,
    "reduce_scatter along the second dim": lambda x: fc.reduce_scatter_tensor(x.view(4, 2).sin(), "avg", 1, world()),
    "broadcast": lambda x: fc.broadcast(x.exp(), 1, world()) * x,
    "all_to_all": lambda x: fc.all_to_all_single(x * 3, None, None, world()) * x,
    "permute": lambda x: fc.permute_tensor(x * 3, [1, 0], world()) * x,
    "one after the other": lambda x: fc.all_reduce(fc.all_reduce(x.tanh(), "sum", world()).tanh(), "sum", world()),
    "two that do not depend on each other": lambda x: (
        fc.all_reduce(x.sin(), "sum", world()) + fc.all_reduce(x.cos(), "sum", world())
    ),
    "its own input": lambda x: fc.all_reduce(x, "sum", world()),
    "several results": lambda x: weft.cat([fc.all_reduce(x, "sum", world()), x]),
}


def in_place(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def in_place_later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y + 1


def into_lists(x):
    parts = [weft.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x + 1)
    own = weft.empty(4)
    dist.scatter(own, list(x.view(2, 4)) if dist.get_rank() == 0 else None, 0)
    return parts[0] * parts[1] + own.repeat(2)


def coalesced(x):
    reduced = fc.all_reduce_coalesced([x * 2, x + 1], "sum", world())
    gathered = fc.all_gather_into_tensor_coalesced([x * 2, x + 1], world())
    return weft.cat([*reduced, *gathered, *fc.reduce_scatter_tensor_coalesced([x, x], "sum", [0, 0], world())])


FLAT = {"in place": in_place, "started, then waited for": in_place_later, "lists": into_lists, "coalesced": coalesced}


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, *FLAT])
def test_a_replay_gives_what_the_function_gives(name):
    function = {**DIFFERENTIABLE, **FLAT}[name]

    def body(rank):
        def outcome(call, at):
            x = (weft.arange(8.0) / 10 + rank + at).requires_grad_(name in DIFFERENTIABLE)
            y = call(x)
            if not x.requires_grad:
                return y, y
            assert y.requires_grad
            y.square().sum().backward()
            return y.detach(), x.grad

        compiled = weft.compile(function, fullgraph=True)
        for at in range(CALLS):
            for found, expected in zip(outcome(compiled, at), outcome(function, at), strict=True):
                weft.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        return captures(compiled)

    assert in_threads(body) == [1, 1]


def test_a_whole_step_with_its_derivative_is_captured():
    def body(rank):
        def losses(whole):
            weft.manual_seed(0)
            w, v = (weft.nn.Parameter(weft.randn(4, 4)) for _ in range(2))
            optimizer = weft.optim.SGD([w, v], 0.05, momentum=0.9)

            def step(x):
                optimizer.zero_grad()
                hidden = fc.all_reduce((x @ w).tanh(), "sum", world())
                loss = fc.all_gather_tensor_autograd(hidden @ v, 0, world()).square().mean()
                loss.backward()
                for parameter in (w, v):
                    dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                optimizer.step()
                return loss

            step = whole(step)
            return step, [step(weft.full((2, 4), 0.3 * (rank + 1) + 0.1 * at)).item() for at in range(6)]

        _, plain = losses(lambda step: step)
        compiled, found = losses(lambda step: weft.compile(step, fullgraph=True))
        assert found == pytest.approx(plain, rel=1e-4)
        return captures(compiled)

    assert in_threads(body) == [2, 2]  # the first call makes the optimizer's state


def test_calls_are_made_in_their_order_whether_or_not_somebody_reads_the_results():
    def body(rank):
        def function(x):
            fc.broadcast(x, 0, world())  # whose result is not read
            dist.barrier()
            y = x + 10
            dist.broadcast(y, 1)
            return x * 2

        # Rank 0 captures it, and rank 1 makes the same calls one by one: they meet only if all are made, in order.
        compiled = weft.compile(function, fullgraph=True) if rank == 0 else None
        for at in range(CALLS):
            own = weft.full((3,), float(at))
            if compiled is not None:
                assert compiled(own).tolist() == [2.0 * at] * 3
            else:
                x, y = -own, own + 5
                dist.broadcast(x, 0)
                assert x.tolist() == own.tolist()
                dist.barrier()
                dist.broadcast(y, 1)
            between = weft.full((1,), float(rank))
            dist.all_reduce(between)
            assert between.item() == 1
        return None if compiled is None else captures(compiled)

    assert in_threads(body) == [1, None]


def test_several_ranks_of_one_process_do_not_wait_for_each_other_in_the_threads_of_xla():
    size, length = 4, 300_000

    def body(rank):
        x = weft.full((length,), float(rank))
        function = weft.compile(
            lambda x: fc.all_reduce(x * 2, "sum", world()) + fc.all_reduce(x + 1, "max", world()), fullgraph=True
        )
        found = [function(x + at)[-1].item() for at in range(CALLS)]
        return found == [2 * (6 + 4 * at) + 4 + at for at in range(CALLS)]

    assert in_threads(body, size) == [True] * size


@pytest.mark.parametrize("compiles", [False, True])
def test_a_failing_call_raises_what_it_raises_uncaptured(compiles):
    def body(rank):
        def function(x):
            return fc.all_reduce(x * 2, "sum", world()) + 1

        call = weft.compile(function, fullgraph=True) if compiles else function
        for _ in range(2):
            assert call(weft.ones(3)).tolist() == [5] * 3
        sizes = weft.ones(3 + rank)
        with pytest.raises(dist.DistBackendError, match="the ranks call different operations: rank 0 called all_red"):
            call(sizes)
        assert call(weft.ones(3)).tolist() == [5] * 3
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match=r"all_reduce\(sum\) of 3 float32, rank 0: rank 1 has left"):
                call(weft.ones(3))

    in_threads(body)


def test_a_group_that_was_left_is_not_used_again():
    def body(rank):
        call = weft.compile(lambda x: fc.all_reduce(x * 2, "sum", world()), fullgraph=True)
        assert [call(weft.ones(1)).item() for _ in range(2)] == [4, 4]
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        assert [call(weft.ones(1)).item() for _ in range(2)] == [4, 4]
        return captures(call)

    assert in_threads(body) == [2, 2]


def test_what_was_deferred_comes_before_what_ends_a_capture():
    def body(rank):
        def function(x):
            y = fc.all_reduce(x, "sum", world())
            if rank == 0:
                dist.send(x, 1)
            else:
                dist.recv(x.clone(), 0)
            return y + fc.all_reduce(x, "sum", world())

        # Rank 0 runs it as it is, so rank 1 gets nothing before the first exchange is done.
        call = weft.compile(function) if rank else function
        return [call(weft.full((1,), float(rank + 1))).item() for _ in range(3)]

    with pytest.warns(UserWarning, match="function needs other ranks, by a collective, at .*; it runs uncaptured"):
        assert in_threads(body) == [[6] * 3] * 2


def test_a_function_that_reads_a_result_runs_uncaptured():
    def body(rank):
        def function(x):
            y = fc.all_reduce(x, "sum", world())
            return x + 1 if y.item() > 2 else x - 1

        with pytest.raises(CompileError, match=r"function: the function needs a tensor's value at "):
            weft.compile(function, fullgraph=True)(weft.ones(1))
        call = weft.compile(function)
        return [call(weft.full((1,), at)).item() for at in (1.0, 3.0)]

    with pytest.warns(UserWarning, match="it runs uncaptured"):
        assert in_threads(body) == [[0, 4]] * 2


def test_calls_before_an_error_of_the_function_are_made():
    def body(rank):
        def function(x):
            dist.all_reduce(x)
            raise KeyError("an error of its own")

        x = weft.ones(1)
        with pytest.raises(KeyError, match="of its own"):
            weft.compile(function)(x)
        return x.item()

    assert in_threads(body) == [2, 2]


def test_a_result_that_is_kept_elsewhere_is_that_of_each_call():
    def body(rank):
        kept = []

        def function(x):
            kept.append(fc.all_reduce(x, "sum", world()))
            return x + 1

        call = weft.compile(function)
        for at in range(3):
            call(weft.full((1,), float(at)))
        return [x.item() for x in kept]

    with pytest.warns(UserWarning, match="it runs uncaptured"):
        assert in_threads(body) == [[0, 2, 4]] * 2


def test_a_result_can_be_differentiated_in_each_call_by_its_own_graph():
    def body(rank):
        call = weft.compile(lambda x: fc.all_reduce(x * x, "sum", world()), fullgraph=True)
        xs = [weft.full((1,), at + rank, requires_grad=True) for at in (1.0, 2.0, 3.0)]
        results = [call(x) for x in xs]
        for y in results:  # after all forward passes
            y.backward(retain_graph=True)
        results[1].backward()
        return [x.grad.item() for x in xs]

    assert in_threads(body) == [[4, 16, 12], [8, 24, 16]]
