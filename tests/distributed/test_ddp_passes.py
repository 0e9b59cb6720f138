"""Backward passes of replicas: several of them, static graphs, gradients in their buckets, and what is refused."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from weft.nn.parallel import DistributedDataParallel
from weft.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def _cores(monkeypatch):
    """Enough of them to send buckets while the backward pass goes on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


def linear(weight=1.0):
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, weight)
    return module


def of(*numbers):
    return weft.tensor([[n] for n in numbers]).float()


# --- several passes ---


def test_two_forward_passes_may_share_a_backward_pass():
    def body(rank):
        module = linear()
        model = DistributedDataParallel(module)
        (model(of(rank + 1)).sum() + model(of(10 * rank)).sum()).backward()
        return module.weight.grad.item()

    assert run(body) == [(1 + 2 + 10) / 2] * 2


def test_each_of_several_backward_passes_averages():
    def body(rank):
        module = linear()
        model = DistributedDataParallel(module)
        first, second = model(of(rank + 1)).sum(), model(of(10 * rank)).sum()
        first.backward(retain_graph=True)
        found = [module.weight.grad.item()]
        second.backward()
        first.backward()
        return [*found, module.weight.grad.item()]

    assert run(body) == [[1.5, 1.5 + 5 + 1.5]] * 2


def test_a_pass_without_synchronisation_does_not_take_back_what_a_forward_pass_has_asked_for():
    def body(rank):
        module = linear()
        model = DistributedDataParallel(module)
        wanted = model(of(rank + 1)).sum()
        with model.no_sync():
            model(of(10 * rank)).sum().backward()
        with weft.no_grad():
            model(of(5))
        wanted.backward()
        return module.weight.grad.item()

    assert run(body) == [5 + 1.5] * 2


def test_a_pass_that_failed_leaves_nothing_behind():
    def body(rank):
        module = nn.Sequential(linear(), linear())
        model = DistributedDataParallel(module, bucket_cap_mb=1)
        handle = module[1].weight.register_post_accumulate_grad_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(of(1)).sum().backward()
        handle.remove()
        model.zero_grad()
        model(of(rank + 1)).sum().backward()
        return module[0].weight.grad.item()

    assert run(body) == [1.5] * 2


class Nested(weft.autograd.Function):
    """A derivative that runs a backward pass of its own, as checkpoints did once."""

    @staticmethod
    def forward(ctx, module, x):
        ctx.module, ctx.x = module, x.detach()
        with weft.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.x.requires_grad_()
        with weft.enable_grad():
            ctx.module(x).backward(grad)
        return None, x.grad


class Twice(nn.Module):
    """Recomputes its layer in two places."""

    def __init__(self, times):
        super().__init__()
        self.inner, self.outer = linear(2.0), linear(3.0)
        self.times = times

    def forward(self, x):
        x = self.outer(x)
        for _ in range(self.times):
            x = Nested.apply(self.inner, x)
        return x.sum()


def test_nested_backward_passes_average_once():
    def body(rank):
        module = Twice(1)
        DistributedDataParallel(module, bucket_cap_mb=1e-6)(of(rank + 1)).backward()
        return module.inner.weight.grad.item(), module.outer.weight.grad.item()

    assert run(body) == [(3 * 1.5, 2 * 1.5)] * 2


def test_a_parameter_with_two_gradients_in_one_pass_needs_a_static_graph():
    def body(rank, static):
        module = Twice(2)
        model = DistributedDataParallel(module, bucket_cap_mb=1e-6, static_graph=static)
        for _ in range(3):
            model.zero_grad()
            model(of(rank + 1)).backward()
        return module.inner.weight.grad.item(), module.outer.weight.grad.item()

    assert run(lambda rank: body(rank, True)) == [(3 * 1.5 * 4, 4 * 1.5)] * 2
    with pytest.raises(RuntimeError, match=r"mark a variable ready only once. The parameter inner.weight .*static"):
        run(lambda rank: body(rank, False))


# --- static graphs ---


class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = linear(), linear(), linear()

    def forward(self, x, which):
        return sum(getattr(self, name)(x).sum() for name in which)


def grads(module):
    return [None if p.grad is None else p.grad.item() for p in module.parameters()]


@pytest.mark.parametrize("in_buckets", [False, True])
def test_a_static_graph_is_learnt_from_the_first_pass(in_buckets):
    def body(rank):
        module = Partly()
        model = DistributedDataParallel(
            module, bucket_cap_mb=1e-6, static_graph=True, gradient_as_bucket_view=in_buckets
        )
        found = []
        for x in (1, 10):
            model.zero_grad()
            model(of(x * (rank + 1)), ["ab", "a"][rank]).backward()
            found.append(grads(module))
        return found

    assert run(body) == [[[1.5, 0.5, None], [15, 5, None]]] * 2


def test_a_static_graph_that_changes_is_refused_by_the_rank_where_it_does():
    def body(rank):
        module = Partly()
        model = DistributedDataParallel(module, bucket_cap_mb=1e-6, static_graph=True)
        model(of(1), "ab").backward()
        if rank:
            with pytest.raises(RuntimeError) as caught:
                model(of(1), "bc").backward()
            return str(caught.value)
        return model(of(1), "ab").backward()

    nothing, text = run(body)
    assert nothing is None
    assert text.startswith("Your training graph has changed in this iteration")
    assert text.endswith("a.weight (1 before, 0 now), c.weight (0 before, 1 now)")


def test_a_static_graph_may_be_declared_later():
    def body(rank):
        model = DistributedDataParallel(Partly(), find_unused_parameters=True)
        with pytest.warns(UserWarning, match="You passed find_unused_parameters=true"):
            model._set_static_graph()
        with pytest.warns(UserWarning, match="You've set static_graph to be True, no need to set it again"):
            model._set_static_graph()
        assert model.static_graph

    run(body, 1)


@pytest.mark.parametrize("static", [False, True])
def test_checkpoints_are_differentiated(static):
    def body(rank):
        module = nn.Sequential(linear(2.0), linear(3.0))
        model = DistributedDataParallel(Checkpointed(module), bucket_cap_mb=1e-6, static_graph=static)
        for _ in range(2):
            model.zero_grad()
            model(of(rank + 1)).backward()
        return grads(module)

    assert run(body) == [[4.5, 3]] * 2


class Checkpointed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False).sum()


# --- gradients in their buckets ---


def test_gradients_may_live_in_their_buckets():
    def body(rank):
        module = nn.Sequential(linear(2.0), linear(3.0))
        model = DistributedDataParallel(module, bucket_cap_mb=1, gradient_as_bucket_view=True)
        model.register_comm_hook(None, allreduce_hook)
        held = []
        module[0].weight.register_post_accumulate_grad_hook(lambda p: held.append(p.grad))
        with model.no_sync():
            model(of(rank + 1)).sum().backward()
        model(of(10)).sum().backward()
        assert held[1] is None  # only the bucket has it by then
        module[0].weight.grad.mul_(2).detach_()
        return grads(module)

    assert run(body) == [[2 * (4.5 + 30), 3 + 20]] * 2


@pytest.mark.parametrize("in_buckets", [False, True])
def test_unused_parameters_keep_what_they_have(in_buckets):
    def body(rank):
        module = Partly()
        model = DistributedDataParallel(
            module, bucket_cap_mb=1, find_unused_parameters=True, gradient_as_bucket_view=in_buckets
        )
        module.c.weight.grad = weft.full((1, 1), 7.0)
        with model.no_sync():
            model(of(rank + 1), "b").backward()
        model(of(10), "a").backward()
        return grads(module)

    assert run(body) == [[10, 1.5, 7]] * 2


# --- what is refused ---


def test_a_rank_that_misses_a_gradient_tells_the_others():
    def body(rank):
        model = DistributedDataParallel(Partly())
        with pytest.raises(RuntimeError) as caught:
            model(of(1), "ab" if rank == 1 else "abc").backward()
        return str(caught.value)

    start = "Rank {}: parameters without a gradient in this backward pass: "
    found = run(body, 3)
    other = "The first rank that differs is rank {}, where they are: {}. Pass find_unused_parameters=True"
    assert found[0].startswith(f"{start.format(0)}none. {other.format(1, 'c.weight')}")
    assert found[1].startswith(f"{start.format(1)}c.weight. {other.format(0, 'none')}")
    assert found[2].startswith(f"{start.format(2)}none. {other.format(1, 'c.weight')}")


def test_a_module_that_was_cast_after_it_was_wrapped_is_refused():
    def body(rank):
        model = DistributedDataParallel(nn.Linear(3, 2))
        model.double()
        with pytest.raises(
            RuntimeError,
            match=r"the parameter weight was float32\[2, 3\] on cpu when .* is float64\[2, 3\] on cpu now; move or",
        ):
            model(weft.ones(1, 3).double())

    run(body, 1)


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (
            lambda state, bucket: 3,
            r"must return a torch.futures.Future object, but got builtins.int",
        ),
        (lambda state, bucket: done([bucket.buffer()] * 2), r"either a Tensor or a TensorList found list"),
        (lambda state, bucket: done(weft.ones(5)), r"bucket 0 holds a tensor of shape \[5\]; expected the 1 elements"),
    ],
)
def test_hooks_that_give_back_something_else_are_refused(hook, text):
    def body(rank):
        model = DistributedDataParallel(linear())
        model.register_comm_hook(None, hook)
        with pytest.raises(RuntimeError, match=text):
            model(of(1)).sum().backward()

    run(body)


def done(value):
    future = weft.futures.Future()
    future.set_result(value)
    return future


def test_a_hook_with_wrong_annotations_is_refused():
    def wrong_bucket(state, bucket: int):
        raise AssertionError

    def wrong_result(state, bucket: dist.GradBucket) -> int:
        raise AssertionError

    def right(state: object, bucket: dist.GradBucket) -> weft.futures.Future[weft.Tensor]:
        return done(bucket.buffer() * 2)

    for one in (wrong_bucket, wrong_result, right):  # as in a file without `from __future__ import annotations`
        one.__annotations__ = {name: eval(text) for name, text in one.__annotations__.items()}

    def body(rank):
        module = linear()
        model = DistributedDataParallel(module)
        with pytest.raises(TypeError, match="Communication hook must be callable"):
            model.register_comm_hook(None, 3)
        with pytest.raises(ValueError, match=r"bucket annotation should be dist\.GradBucket"):
            model.register_comm_hook(None, wrong_bucket)
        with pytest.raises(ValueError, match=r"return annotation should be torch.futures.Future\[torch.Tensor\]"):
            model.register_comm_hook(None, wrong_result)
        model.register_comm_hook(None, right)
        model(of(3)).sum().backward()
        return module.weight.grad.item()

    assert run(body, 1) == [6]


def test_options_that_are_not_supported_say_what_to_do():
    def body(rank):
        module = linear()
        for options, text in (
            ({"mixed_precision": object()}, "does not support mixed_precision; cast the module before it is wrapped"),
            ({"device_mesh": object()}, "device_mesh must be a DeviceMesh"),
        ):
            with pytest.raises(RuntimeError, match=text):
                DistributedDataParallel(module, **options)
        with pytest.raises(ValueError, match="param_to_hook_all_reduce need to be set at the same time"):
            DistributedDataParallel(module, delay_all_reduce_named_params=[])
        with pytest.raises(RuntimeError, match="does not support delay_all_reduce_named_params; list the names"):
            DistributedDataParallel(module, delay_all_reduce_named_params=[], param_to_hook_all_reduce=module.weight)
        with pytest.raises(ValueError, match="device_ids can only be None or contain a single element"):
            DistributedDataParallel(module, device_ids=[0, 1])
        with pytest.raises(ValueError, match="only work with single-device/multiple-device GPU modules"):
            DistributedDataParallel(module, device_ids=[0])
        with pytest.raises(RuntimeError, match="wraps a module, or a compiled one, not function"):
            DistributedDataParallel(lambda x: x)
        with pytest.raises(RuntimeError, match="Modules with uninitialized parameters can't be used"):
            DistributedDataParallel(nn.LazyLinear(2))

    run(body, 1)


def test_former_options_warn():
    def body(rank):
        with pytest.warns(FutureWarning, match="`broadcast_buffers` is deprecated. Use `forward_sync_buffers`"):
            assert not DistributedDataParallel(linear(), broadcast_buffers=False).broadcast_buffers
        with pytest.warns(FutureWarning, match="Both `broadcast_buffers` and `forward_sync_buffers` were specified"):
            model = DistributedDataParallel(linear(), broadcast_buffers=False, forward_sync_buffers=True)
        assert model.broadcast_buffers
        with pytest.warns(FutureWarning, match="`check_reduction` argument in `DistributedDataParallel` module is"):
            DistributedDataParallel(linear(), check_reduction=True)

    run(body, 1)


def test_each_bucket_may_have_a_size_of_its_own():
    def body(rank):
        module = nn.Sequential(*(linear() for _ in range(6)))
        model = DistributedDataParallel(module, bucket_cap_mb_list=[4 / 2**20, 8 / 2**20])
        return model.reducer.buckets

    assert run(body, 1) == [[[5], [4, 3], [2, 1], [0]]]


def test_listed_parameters_and_buffers_are_left_alone():
    def body(rank):
        module = nn.Sequential(linear(), nn.BatchNorm1d(1, affine=False), linear())
        module._ddp_params_and_buffers_to_ignore = ["0.weight", "1.running_mean", "1.running_var"]
        nn.init.constant_(module[0].weight, float(rank))
        module[1].running_mean.fill_(float(rank))
        model = DistributedDataParallel(module)
        model(of(1, 2)).sum().backward()
        return module[0].weight.item(), module[0].weight.grad is not None, module[1].running_mean.item() > 0.5

    assert run(body) == [(0, True, False), (1, True, True)]


class Shuffled(nn.Module):
    """Layers that are used in another order than they are made in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size, bias=False) for size in (3, 2, 4))

    def forward(self, x):
        third, first, second = self.layers
        return {"sum": third(first(x[:, :2]).sum() + second(x).sum() + x[:, :3]).sum()}


def test_buckets_follow_the_order_of_the_backward_pass_from_the_first_one_on():
    def body(rank):
        dist.init_process_group("threads")
        sent = []

        def hook(state, bucket):
            sent.append([tuple(p.shape) for p in bucket.parameters()])
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        model = DistributedDataParallel(Shuffled(), bucket_cap_mb=1e-5)
        model.register_comm_hook(None, hook)
        for _ in range(2):
            model(weft.ones(1, 4))["sum"].backward()
        return sent

    assert dist.run_threads(body, nprocs=2) == [[[(3, 3)], [(4, 4)], [(2, 2)]] * 2] * 2
