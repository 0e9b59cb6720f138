"""Cases that two ranks of backend `xla` run together. As a program (FOLDER RANK), it is one of them."""

from __future__ import annotations

import sys
import warnings
from itertools import count

import numpy as np
import pytest

import weft as torch
import weft.distributed as dist
import weft.xla.core.xla_model as xm
from tests.distributed.processes import Cases, serve
from weft import nn
from weft.distributed import _functional_collectives as fc
from weft.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from weft.distributed.nn import functional
from weft.errors import CompileError
from weft.nn.parallel import DistributedDataParallel

SIZE = 2
STEPS = 4
case = Cases()


def layers() -> nn.Module:
    """Layers that treat samples one by one, so that ranks and one process compute the same."""
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def with_buffers() -> nn.Module:
    """Layers with buffers, of which those of rank 0 count."""
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def descent(parameters):
    return torch.optim.SGD(parameters, 0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, 0.05)


def trained(make, wrap, optimizer=momentum, whole=lambda step: step, ranks=SIZE, mode=lambda model, k: None):
    """The state of a model after some steps, on this rank's part of each batch, and the losses."""
    torch.manual_seed(7)
    module = make().double()
    model = wrap(module)
    updates = optimizer(module.parameters())
    losses = []

    @whole
    def step(x):
        updates.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        updates.step()
        return loss.detach()

    rank = dist.get_rank() if ranks > 1 else 0
    for k, x in enumerate(torch.arange(12.0 * STEPS).double().reshape(STEPS, 4, 3).sin()):
        mode(model, k)
        losses.append(step(x[rank::ranks].clone()))
    return {name: value.numpy() for name, value in module.state_dict().items()}, [loss.item() for loss in losses]


def close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def at_once(module):
    """A replica that exchanges gradients and buffers in operations of their own."""
    model = DistributedDataParallel(module)
    model.register_comm_hook(None, allreduce_hook)
    assert not model.reducer.records
    return model


def compiled(step):
    return torch.compile(step, fullgraph=True)


def step_of(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def mine(*shape: int) -> torch.Tensor:
    """Numbers that differ between ranks."""
    return torch.arange(float(np.prod(shape))).reshape(shape) + 10 * dist.get_rank()


# --- functional collectives ---

CALLS = {
    "all_reduce": (
        lambda x, group: fc.all_reduce(x, "sum", group),
        [[[10, 12], [14, 16]]] * 2,
        [[[20, 24], [28, 32]]] * 2,
    ),
    "average": (
        lambda x, group: fc.all_reduce(x, "avg", group),
        [[[5, 6], [7, 8]]] * 2,
        [[[5, 6], [7, 8]]] * 2,
    ),
    "broadcast": (
        lambda x, group: fc.broadcast(x, 1, group),
        [[[10, 11], [12, 13]]] * 2,
        [[[0, 0], [0, 0]], [[20, 22], [24, 26]]],
    ),
    "all_gather": (
        lambda x, group: fc.all_gather_tensor(x, 1, group),
        [[[0, 1, 10, 11], [2, 3, 12, 13]]] * 2,
        [[[0, 2], [4, 6]], [[20, 22], [24, 26]]],
    ),
    "parts of all ranks": (
        lambda x, group: functional.all_gather(x, group)[1],
        [[[10, 11], [12, 13]]] * 2,
        [[[0, 0], [0, 0]], [[20, 22], [24, 26]]],
    ),
    "reduce_scatter": (
        lambda x, group: fc.reduce_scatter_tensor(x, "avg", 1, group),
        [[[5], [7]], [[6], [8]]],
        [[[2.5, 3], [3.5, 4]]] * 2,
    ),
    "reduce_scatter of a list": (
        lambda x, group: functional.reduce_scatter(x[0], [x[0], x[1]], group=group),
        [[10, 12], [14, 16]],
        [[[10, 12], [14, 16]]] * 2,
    ),
    "all_to_all": (
        lambda x, group: fc.all_to_all_single(x, None, None, group),
        [[[0, 1], [10, 11]], [[2, 3], [12, 13]]],
        [[[0, 1], [2, 3]], [[10, 11], [12, 13]]],
    ),
}


@case
def collectives_are_operators_of_a_captured_function():
    rank, group, calls = dist.get_rank(), dist.group.WORLD, [call for call, _, _ in CALLS.values()]

    def every(*xs):
        found = [fc.wait_tensor(call(x, group)) for call, x in zip(calls, xs, strict=True)]
        sum(y.square().sum() for y in found).backward()
        return [y.detach() for y in found]

    captured = compiled(every)
    for run in (every, captured, captured):
        xs = [mine(2, 2).requires_grad_() for _ in CALLS]
        ys = run(*xs)
        for (name, (_, results, gradients)), x, y in zip(CALLS.items(), xs, ys, strict=True):
            assert y.tolist() == results[rank], name
            assert (x.grad / 2).tolist() == gradients[rank], name


@case
def collectives_are_computed_with_the_rest_of_a_step():
    x = mine(2)
    x.tolist()
    before = len(torch.explain())
    found = (functional.all_reduce(2 * x) * functional.all_gather(x)[0]).sum()
    assert "all_reduce" in xm.get_stablehlo([found])
    assert found.item() == 24  # 2 * (10, 12) and (0, 1)
    assert len(torch.explain()) == before + 1


@case
def the_derivative_of_other_reductions_is_as_before():
    x = mine(2).requires_grad_()
    functional.all_reduce(x, dist.ReduceOp.MAX).square().sum().backward()
    assert x.grad.tolist() == [20, 22]
    scaled = functional.all_reduce(x.detach(), dist._make_nccl_premul_sum(0.5))
    assert scaled.tolist() == [5, 6]


@case
def half_precision_is_added_in_single():
    x = (mine(2) / 3).bfloat16().requires_grad_()
    first, second = functional.all_gather(x)
    assert functional.all_reduce(x).dtype is torch.bfloat16
    (first + 2 * second).sum().backward()
    assert x.grad.tolist() == [2.0 + 2 * dist.get_rank()] * 2


@case
def uneven_parts_end_a_capture():
    group = dist.group.WORLD

    @torch.compile(fullgraph=True)
    def exchanged(x):
        return fc.all_to_all_single(x, [1, 1], [1, 1], group)

    with pytest.raises(CompileError, match="needs other ranks, by a collective,"):
        exchanged(mine(2))
    with pytest.raises(RuntimeError, match=r"^reduction 'band' is not defined for float32$"):
        fc.all_reduce(mine(2), "band", group)


# --- replicas ---


@case
def a_captured_step_trains_as_one_process():
    expected, _ = trained(layers, lambda module: module, adam, ranks=1)
    found, losses = trained(layers, DistributedDataParallel, adam, compiled)
    close(found, expected)
    first, second = functional.all_gather(torch.tensor(losses))
    assert first.tolist() != second.tolist()  # each is of a part of the batch


@case
def a_captured_step_trains_as_averages_that_are_exchanged_at_once():
    expected, _ = trained(with_buffers, at_once)
    for whole in (compiled, lambda step: step):
        found, _ = trained(with_buffers, DistributedDataParallel, whole=whole)
        assert found["1.num_batches_tracked"] == STEPS
        close(found, expected)
    for wrap in (  # whose averages are recorded beside the captured module
        lambda module: DistributedDataParallel(torch.compile(module)),
        lambda module: torch.compile(DistributedDataParallel(module)),
    ):
        found, _ = trained(with_buffers, wrap)
        close(found, expected)


@case
def a_step_is_one_executable():
    torch.manual_seed(0)
    module = with_buffers()
    model = DistributedDataParallel(module)
    step = compiled(step_of(model, momentum(module.parameters())))
    x = mine(4, 3).sin()
    x.tolist()
    for _ in range(2):  # until the optimizer has its state
        step(x)
    before = len(torch.explain())
    for _ in range(STEPS):
        step(x)
    assert len(torch.explain()) == before + 1
    assert torch.explain()[-1].cause.startswith("compiled step"), torch.explain()[-1]


@case
def the_program_of_a_step_holds_its_averages():
    module = nn.Linear(3, 2)
    model = DistributedDataParallel(module, bucket_cap_mb=1e-6)
    optimizer = momentum(module.parameters())
    before = len(torch.explain())
    model(mine(4, 3)).square().mean().backward()
    text = xm.get_stablehlo()
    assert text.count("stablehlo.all_reduce") == len(model.reducer.buckets) == 2
    assert "stablehlo.dot_general" in text
    optimizer.step()
    assert module.weight.tolist()
    assert len(torch.explain()) == before + 1


@case
def gradients_are_summed_under_no_sync():
    x = mine(2, 3).sin()
    weights = []
    for whole in (lambda step: step, compiled):
        for wrap in (DistributedDataParallel, at_once):
            torch.manual_seed(0)
            module = nn.Linear(3, 2)
            model, optimizer = wrap(module), momentum(module.parameters())

            def add(x, model=model):
                with model.no_sync():
                    model(x).square().sum().backward()

            def end(x, model=model, optimizer=optimizer):
                model(x).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)

            if wrap is DistributedDataParallel:
                add, end = whole(add), whole(end)
            for k in range(4):
                add(x + k)
                alone = functional.all_gather(module.weight.grad)
                assert alone[0].tolist() != alone[1].tolist()  # not averaged yet
                add(x - k)
                end(2 * x)
                assert not module.weight.grad.any()
            weights.append(module.weight.detach().numpy())
    for other in weights[1:]:
        np.testing.assert_allclose(other, weights[0], rtol=1e-4, atol=1e-6)


@case
def a_captured_forward_pass_knows_whether_it_averages():
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(1.0)
    model = DistributedDataParallel(module)

    @compiled
    def loss_of(x):
        return model(x).sum()

    def gradient(x):
        module.weight.grad = None
        loss_of(x).backward()
        return module.weight.grad.item()

    x = torch.full((1, 1), dist.get_rank() + 1.0)
    for _ in range(3):
        assert gradient(x) == 1.5
        with model.no_sync():
            assert gradient(x) == dist.get_rank() + 1
    assert gradient(x) == 1.5


@case
def hooks_and_unknown_parameters_are_exchanged_at_once():
    x = mine(4, 3).sin()
    for wrap in (at_once, lambda module: DistributedDataParallel(module, find_unused_parameters=True)):
        module = layers()
        model = wrap(module)
        step = torch.compile(step_of(model, momentum(module.parameters())))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step(x)
        assert ["needs the ranks that a DistributedDataParallel" in str(w.message) for w in caught] == [True]
        with pytest.raises(CompileError, match="needs the ranks that a DistributedDataParallel averages over"):
            compiled(step_of(model, momentum(module.parameters())))(x)


@case
def a_hook_that_comes_later_ends_replays():
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(1.0)
    model = DistributedDataParallel(module)

    @torch.compile
    def step(x):
        module.weight.grad = None
        model(x).sum().backward()

    calls = []

    def hook(state, bucket):
        calls.append(bucket.index())
        return allreduce_hook(state, bucket)

    x = torch.full((1, 1), dist.get_rank() + 1.0)
    for _ in range(3):
        step(x)
        assert module.weight.grad.item() == 1.5
    model.register_comm_hook(None, hook)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(x)
    assert calls == [0]
    assert module.weight.grad.item() == 1.5


@case
def a_static_graph_is_recorded_from_the_second_step_on():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return self.used(x)

    module = Half()
    model = DistributedDataParallel(module, static_graph=True)
    step = step_of(model, momentum(module.parameters()))
    step(mine(2, 3)).item()
    assert model.reducer.records
    step = compiled(step)
    for _ in range(3):
        step(mine(2, 3)).item()
    assert module.unused.weight.grad is None
    both = functional.all_gather(module.used.weight.detach())
    assert both[0].tolist() == both[1].tolist()


@case
def uneven_inputs_are_exchanged_at_once():
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.zero_()
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with model.join():
        for _ in range(1 + dist.get_rank()):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    assert module.weight.item() == pytest.approx(-0.15)
    optimizer.zero_grad()
    model(mine(1, 1)).sum().backward()
    assert model.reducer.records
    assert module.weight.grad.item() == 5


@case
def batch_norm_over_all_ranks_is_captured():
    def synchronised(module):
        return DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(module))

    expected, _ = trained(with_buffers, lambda module: module, descent, ranks=1)
    found, _ = trained(with_buffers, synchronised, descent, compiled)
    close(found, expected)


@case
def a_second_group_of_all_ranks_changes_nothing():
    group = dist.new_group()
    module = nn.Linear(1, 1, bias=False)
    model = DistributedDataParallel(module, process_group=group)
    model(mine(1, 1)).sum().backward()
    assert module.weight.grad.item() == 5
    work = dist.all_reduce(mine(2), async_op=True)  # and a program comes after what has begun
    assert functional.all_reduce(mine(2), group=group).tolist() == [10, 12]
    work.wait()
    dist.destroy_process_group(group)
    assert functional.all_reduce(mine(2)).tolist() == [10, 12]


@case
def parameters_without_a_gradient_are_told_on_all_ranks():
    module = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    module.forward = lambda x: module.a(x)
    model = DistributedDataParallel(module)
    with pytest.raises(RuntimeError, match=r"parameters without a gradient in this backward pass: b.weight, b.bias\."):
        model(mine(1, 1)).sum().backward()


# --- ranks that differ: the group cannot be used after that ---


def join_again() -> None:
    """A new group of the same processes, which runs the programs of the former one."""
    dist.destroy_process_group()
    join()
    assert functional.all_reduce(mine(2)).tolist() == [10, 12]


@case
def a_rank_that_records_something_else_is_told():
    x = mine(2)
    found = functional.all_gather(x)[0] if dist.get_rank() else functional.all_reduce(x)
    with pytest.raises(RuntimeError, match=r"the ranks call different operations: rank 0 called a program with "):
        found.tolist()
    join_again()


@case
def a_rank_that_misses_gradients_tells_the_others():
    module = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    model = DistributedDataParallel(module)
    module.forward = (lambda x: module.a(x)) if dist.get_rank() else lambda x: module.b(module.a(x))
    loss = model(mine(1, 1)).sum()
    with pytest.raises(RuntimeError, match=r"gradient.*b\.weight.*b\.bias"):  # at the end of the pass, or at the read
        _ = loss.backward() or module.a.weight.grad.tolist()
    join_again()


_stores = count()


def join() -> None:
    dist.init_process_group("xla", f"file://{sys.argv[1]}/store{next(_stores)}", rank=int(sys.argv[2]), world_size=SIZE)


def main() -> None:
    join()
    serve(f"rank {dist.get_rank()}", {function.__name__: function for function in case})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
