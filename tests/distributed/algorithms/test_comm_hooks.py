"""Communication hooks of replicas."""

from __future__ import annotations

import pickle
from datetime import timedelta

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
    register_ddp_comm_hook,
)
from weft.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import orthogonalized
from weft.distributed.optim import as_functional_optim
from weft.nn.parallel import DistributedDataParallel


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


def of_shapes(*shapes, dtype=weft.float64, **options):
    """A replica of a module with parameters of these shapes, whose gradients are what it is called with."""

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.all = nn.ParameterList(nn.Parameter(weft.zeros(shape, dtype=dtype)) for shape in shapes)

        def forward(self, grads):
            return sum((p * weft.tensor(g, dtype=dtype)).sum() for p, g in zip(self.all, grads, strict=True))

    return DistributedDataParallel(Given(), **options)


def grads_of(model, given):
    model.zero_grad()
    model(given).backward()
    return [p.grad.numpy() for p in model.parameters()]


def draw(rank, *shapes, seed=0):
    rng = np.random.default_rng((seed, rank))
    return [rng.standard_normal(shape) for shape in shapes]


SHAPES = ((3, 2), (4,), ())


@pytest.mark.parametrize(
    ("register", "tolerance"),
    [
        (lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook), 1e-12),
        (lambda model: model.register_comm_hook(model.process_group, default_hooks.fp16_compress_hook), 2e-3),
        (lambda model: model.register_comm_hook(None, default_hooks.bf16_compress_hook), 2e-2),
        (lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE), 1e-12),
        (lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS), 2e-3),
        (lambda model: register_ddp_comm_hook(DDPCommHookType.BF16_COMPRESS, model), 2e-2),
        (lambda model: register_ddp_comm_hook(DDPCommHookType.POWER_SGD, model, None), 1e-12),
        (
            lambda model: model.register_comm_hook(
                None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
            ),
            2e-3,
        ),
        (
            lambda model: model.register_comm_hook(
                powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
                default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook),
            ),
            2e-2,
        ),
    ],
)
def test_averages_are_as_exact_as_what_is_exchanged(register, tolerance):
    def body(rank):
        model = of_shapes(*SHAPES, bucket_cap_mb=1e-5)
        register(model)
        found = grads_of(model, draw(rank, *SHAPES))
        assert [p.grad.dtype for p in model.parameters()] == [weft.float64] * 3
        return found

    first, second = run(body)
    for mine, other, a, b in zip(first, second, draw(0, *SHAPES), draw(1, *SHAPES), strict=True):
        assert np.array_equal(mine, other)
        np.testing.assert_allclose(mine, (a + b) / 2, rtol=tolerance, atol=tolerance)


def test_nothing_is_exchanged_by_the_hook_to_measure_with():
    def body(rank):
        model = of_shapes(())
        model.register_comm_hook(None, debugging_hooks.noop_hook)
        return grads_of(model, [rank])[0].item()

    assert run(body) == [0, 1]


@pytest.mark.parametrize("joined", [False, True])
def test_collectives_of_a_hooks_callbacks_keep_their_order_between_buckets(joined):
    """Each bucket's callbacks run collectives of their own, as other buckets are on their way."""

    def body(rank):
        def hook(state, bucket):
            def again(future):
                total = future.value()[0]
                return dist.all_reduce(total * 1, async_op=True).get_future().wait()[0]

            def once_more(future):
                dist.all_reduce(future.value(), op=dist.ReduceOp.MAX)
                return future.value()

            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(again).then(once_more)

        model = of_shapes(*[(2,)] * 6, bucket_cap_mb=1e-6)
        model.register_comm_hook(None, hook)
        found = []
        with model.join(enable=joined):
            for step in range(2 + (2 * rank if joined else 0)):
                found.append([float(g[0]) for g in grads_of(model, [[step + at + rank] * 2 for at in range(6)])])
        return found[:2], found[2:]

    (first, _), (second, rest) = run(body)
    assert first == second == [[2 * (2 * (step + at) + 1) for at in range(6)] for step in range(2)]
    assert rest == ([[2 * (step + at + 1) for at in range(6)] for step in (2, 3)] if joined else [])


def test_local_sgd_begins_after_some_steps():
    def body(rank):
        alone = [dist.new_group([0]), dist.new_group([1])][rank]
        state = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=1)
        model = of_shapes(())
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        found = [grads_of(model, [rank + 1])[0].item() for _ in range(2)]
        state.post_local_gradient_allreduce = False
        found.append(grads_of(model, [rank + 1])[0].item())
        state.post_local_gradient_allreduce, state.subgroup = True, None
        with pytest.raises(RuntimeError, match="PostLocalSGDState needs a subgroup"):
            grads_of(model, [1])
        return found

    assert run(body) == [[1.5, 1, 1], [1.5, 2, 2]]


# --- PowerSGD ---


def power(rank, shapes, hook=powerSGD_hook.powerSGD_hook, steps=1, grads=None, **options):
    """Gradients of some steps after the plain ones, and the state."""
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, **options)
    model = of_shapes(*shapes, bucket_cap_mb=1)
    model.register_comm_hook(state, hook)
    given = draw(rank, *shapes) if grads is None else grads
    exact = grads_of(model, given), grads_of(model, given)
    assert all(np.array_equal(a, b) for a, b in zip(*exact, strict=True))
    return [grads_of(model, given) for _ in range(steps)], state, exact[0]


@pytest.mark.parametrize(("together", "rank_of_matrices"), [(False, 2), (True, 3)])
def test_matrices_of_low_rank_come_through_whole(together, rank_of_matrices):
    shapes = ((12, 10), (12, 10), (12, 5, 2), (7,))

    def body(rank):
        rng = np.random.default_rng(3)  # the same column space on all ranks
        thin = rng.standard_normal((12, rank_of_matrices))
        wide = [np.random.default_rng((rank, at)).standard_normal((rank_of_matrices, 10)) for at in range(3)]
        given = [(thin @ w).reshape(shape) for w, shape in zip(wide, shapes, strict=False)]
        (found,), state, exact = power(
            rank,
            shapes,
            grads=[*given, np.arange(7.0) + rank],
            min_compression_rate=1,
            matrix_approximation_rank=rank_of_matrices,
            batch_tensors_with_same_shape=together,
        )
        for mine, expected in zip(found, exact, strict=True):
            np.testing.assert_allclose(mine, expected, atol=1e-10)
        return state.compression_stats()

    before, after = 3 * 120 + 7, 3 * 22 * rank_of_matrices + 7
    assert run(body) == [(before / after, before, after)] * 2


@pytest.mark.parametrize("hook", [powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook])
def test_what_is_lost_comes_later(hook):
    """The sum of approximations approaches that of the averages: what is lost stays bounded."""
    shapes, steps = ((8, 8), (3,)), 40

    def body(rank):
        found, _, exact = power(rank, shapes, hook, steps)
        lost = [np.abs(sum(step[at] for step in found) - steps * exact[at]).max() for at in range(2)]
        without, _, _ = power(rank, shapes, hook, steps, use_error_feedback=False, warm_start=False)
        drift = np.abs(sum(step[0] for step in without) - steps * exact[0]).max()
        assert max(lost) < 0.6 * drift
        return [step[0].tolist() for step in found]

    first, second = run(body)
    assert first == second


def test_small_matrices_and_steps_before_the_start_are_not_compressed():
    def body(rank):
        (found,), state, exact = power(rank, ((3, 3), (2,)))
        np.testing.assert_allclose(found[0], exact[0], atol=1e-12)
        assert state.compression_stats() == (1, 11, 11)
        assert state.iter == 3

    run(body)


def test_a_gradient_of_zeros_stays_one():
    def body(rank):
        (found,), _, _ = power(rank, ((8, 8),), grads=[np.zeros((8, 8))])
        assert not found[0].any()

    run(body)


def test_the_state_is_saved_without_its_group():
    def body(rank):
        _, state, _ = power(rank, ((8, 8),))
        again = pickle.loads(pickle.dumps(state))
        assert again.process_group is dist.GroupMember.WORLD or again.process_group.size() == 2
        assert again.iter == 3
        assert np.array_equal(again.error_dict[0].numpy(), state.error_dict[0].numpy())

    run(body)


def test_a_start_before_buckets_are_settled_is_refused():
    with pytest.raises(ValueError, match=r"Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start`"):
        powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1)
    powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=0, use_error_feedback=False, warm_start=False)


@pytest.mark.parametrize(
    ("columns", "dtype"), [(1, weft.float64), (2, weft.float64), (4, weft.float64), (4, weft.float16)]
)
def test_columns_become_orthonormal(columns, dtype):
    matrices = weft.tensor(np.random.default_rng(0).standard_normal((3, 6, columns)), dtype=dtype)
    found = orthogonalized(matrices).double().numpy()
    tolerance = 1e-12 if dtype is weft.float64 else 1e-2
    assert found.shape == (3, 6, columns)
    np.testing.assert_allclose(
        found.swapaxes(1, 2) @ found, np.broadcast_to(np.eye(columns), (3, columns, columns)), atol=tolerance
    )


# --- 8 bits ---


def in_8_bits(x, channel):
    """What remains of values whose channels are quantised, by PyTorch's formula in float32."""
    flat = x.reshape(-1).astype(np.float32)
    rows = np.pad(flat, (0, -flat.size % channel)).reshape(-1, channel)
    low, high = np.minimum(rows.min(1), 0), np.maximum(rows.max(1), 0)
    scale = np.maximum((high - low) / np.float32(255), np.finfo(np.float32).eps)[:, None]
    zero = np.clip(-np.round(low[:, None] / scale), 0, 255)
    levels = np.clip(np.round(rows / scale) + zero, 0, 255).astype(np.uint8)
    return (scale * (levels.astype(np.float32) - zero)).reshape(-1)[: flat.size].reshape(x.shape)


@pytest.mark.parametrize("size", [1024, 700])
@pytest.mark.parametrize(
    ("kind", "channel"), [(DDPCommHookType.QUANTIZE_PER_TENSOR, None), (DDPCommHookType.QUANTIZE_PER_CHANNEL, 512)]
)
def test_gradients_travel_in_8_bits(kind, channel, size):
    def body(rank):
        model = of_shapes((size,), dtype=weft.float32)
        register_ddp_comm_hook(kind, model)
        return grads_of(model, given[rank])[0]

    given = [[(rank + 0.7) * np.arange(-20.0, size - 20) ** 3] for rank in range(2)]  # the first few are small
    first, second = run(body)
    expected = sum(in_8_bits(x, channel or size) for (x,) in given) / 2
    assert np.array_equal(first, second)
    np.testing.assert_allclose(first, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_what_is_not_finite_stays_so():
    def body(rank):
        model = of_shapes((3,), dtype=weft.float32)
        model.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook)
        return np.isfinite(grads_of(model, [[1.0, np.inf if rank else 2.0, 0.0]])[0]).any()

    assert run(body) == [False, False]


@pytest.mark.parametrize("hook", [default_hooks.allreduce_hook, default_hooks.bf16_compress_hook])
def test_an_optimizer_in_the_hook_updates_parameters(hook):
    def body(rank):
        def ended(model, optimizer):
            for step in range(3):
                model.zero_grad()
                model(draw(rank, *SHAPES, seed=step)).backward()
                if optimizer is not None:
                    optimizer.step()
            return [p.tolist() for p in model.parameters()]

        reference = of_shapes(*SHAPES, bucket_cap_mb=1e-5)
        reference.register_comm_hook(None, hook)
        expected = ended(reference, weft.optim.Adam(reference.parameters(), lr=0.1))
        model = of_shapes(*SHAPES, bucket_cap_mb=1e-5)
        state = optimizer_overlap_hooks._OptimizerHookState(as_functional_optim(weft.optim.Adam, 0.1))
        model.register_comm_hook(None, optimizer_overlap_hooks._hook_then_optimizer(hook, state))
        return ended(model, None) == expected

    assert run(body) == [True, True]


def test_an_optimizer_in_the_hook_may_be_for_some_parameters():
    def body(rank):
        model = of_shapes(*SHAPES)
        first, *others = model.parameters()
        functional = as_functional_optim(weft.optim.SGD, 1.0)
        state = optimizer_overlap_hooks._OptimizerHookState(functional, [first])
        hook = optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, state)
        model.register_comm_hook(None, hook)
        grads = grads_of(model, draw(0, *SHAPES))
        assert (first.numpy(force=True) == -grads[0]).all()
        return [p.abs().sum().item() for p in others]

    assert run(body) == [[0, 0]] * 2


def test_an_optimizer_in_the_hook_takes_single_parameters():
    optimizer = weft.optim.SGD([nn.Parameter(weft.zeros(1))])
    with pytest.raises(ValueError, match=r"SGD.* must implement method step_param.*as_functional_optim"):
        optimizer_overlap_hooks._OptimizerHookState(optimizer)
