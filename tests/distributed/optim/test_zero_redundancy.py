"""An optimizer whose state is spread over ranks."""

from __future__ import annotations

import copy
import logging
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn, optim
from weft.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, default_hooks
from weft.distributed.algorithms.join import Join
from weft.distributed.optim import ZeroRedundancyOptimizer, _FunctionalAdam
from weft.nn.parallel import DistributedDataParallel

HOOKS = [None, ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved]


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


def network():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def groups(module):
    first, *others = module.parameters()
    return [{"params": [first], "lr": 0.5}, {"params": others}]


def trained(model, optimizer, rank, steps=4, hooked=False):
    for step in range(steps):
        optimizer.zero_grad()
        x = weft.linspace(-1, 1, 20, dtype=weft.float64).view(4, 5) * (1 + rank + step)
        model(x).square().mean().backward()
        if not hooked:
            optimizer.step()
    return [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.Adagrad])
def test_training_ends_where_it_does_with_one_optimizer(hook, kind):
    def body(rank):
        alone = DistributedDataParallel(network())
        expected = trained(alone, kind(groups(alone), lr=0.1), rank)
        model = DistributedDataParallel(network(), bucket_cap_mb=1e-4)
        optimizer = ZeroRedundancyOptimizer(groups(model), kind, lr=0.1, overlap_with_ddp=hook is not None)
        if hook is not None:
            model.register_comm_hook(None, hook(default_hooks.allreduce_hook, model, optimizer))
        found = trained(model, optimizer, rank, hooked=hook is not None)
        for mine, right in zip(found, expected, strict=True):
            assert weft.allclose(weft.tensor(mine), weft.tensor(right), rtol=1e-12)
        return found, [len(optimizer.state), len(model.reducer.buckets)]

    ranks = run(body, 3)
    assert ranks[0][0] == ranks[1][0] == ranks[2][0]
    assert all(buckets > 1 for _, (_, buckets) in ranks)
    if kind is optim.Adam:
        assert sum(states for _, (states, _) in ranks) == 6


def test_parameters_are_spread_by_size():
    def body(rank):
        sizes = [1, 7, 2, 4, 3]
        params = [nn.Parameter(weft.zeros(size)) for size in sizes]
        optimizer = ZeroRedundancyOptimizer(params, optim.SGD, lr=0.1)
        optimizer.add_param_group({"params": [nn.Parameter(weft.zeros(5))], "lr": 1.0})
        assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
        return [[p.numel() for p in group["params"]] for group in optimizer.optim.param_groups]

    assert run(body) == [[[7, 2], []], [[1, 4, 3], [5]]]


def test_a_schedule_is_followed_on_all_ranks():
    def body(rank):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.Adam, lr=0.1)
        schedule = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(2):
            trained(model, optimizer, rank, 1)
            schedule.step()
        trained(model, optimizer, rank, 1)
        return optimizer.optim.param_groups[0]["lr"], optimizer.param_groups[0]["betas"]

    assert run(body) == [(0.025, (0.9, 0.999))] * 2


def test_a_run_goes_on_from_a_state_dict():
    def body(rank):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(groups(model), optim.Adam, lr=0.1)
        trained(model, optimizer, rank)
        optimizer.consolidate_state_dict(to=1)
        listed = [optimizer.state_dict() if rank == 1 else None]
        dist.broadcast_object_list(listed, 1)
        saved = listed[0]
        before = copy.deepcopy(saved["param_groups"])
        plain = DistributedDataParallel(network())
        plain.load_state_dict(model.state_dict())
        other = optim.Adam(groups(plain), lr=0.1)
        other.load_state_dict(saved)  # it is that of one optimizer for all
        again = DistributedDataParallel(network())
        again.load_state_dict(model.state_dict())
        resumed = ZeroRedundancyOptimizer(groups(again), optim.Adam, lr=0.3)
        resumed.load_state_dict(saved)
        assert saved["param_groups"] == before
        assert len(saved["state"]) == 6
        assert len(resumed.state) < 6
        expected = trained(plain, other, rank)
        assert trained(again, resumed, rank) == expected
        return expected == trained(model, optimizer, rank)

    assert run(body) == [True, True]


def test_state_of_another_model_is_refused():
    def body(rank):
        params = [nn.Parameter(weft.ones(size)) for size in (2, 2)]
        optimizer = ZeroRedundancyOptimizer(params, optim.Adam)
        for param in params:
            param.grad = weft.ones(2)
        optimizer.step()
        for to in range(2):
            optimizer.consolidate_state_dict(to)
        other = ZeroRedundancyOptimizer([nn.Parameter(weft.ones(3)) for _ in range(2)], optim.Adam)
        with pytest.raises(ValueError, match=r"loaded state dict does not fit parameter [01] of group 0"):
            other.load_state_dict(optimizer.state_dict())

    run(body)


@pytest.mark.parametrize("divides", [True, False])
def test_ranks_without_inputs_update_their_part(divides):
    def body(rank):
        alone = DistributedDataParallel(network())
        with alone.join(divide_by_initial_world_size=divides):
            expected = trained(alone, optim.Adam(alone.parameters(), lr=0.1), rank, 2 + rank)
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.Adam, lr=0.1)
        with Join([model, optimizer], divide_by_initial_world_size=divides):
            trained(model, optimizer, rank, 2 + rank)
        return [p.tolist() for p in model.parameters()] == [p.tolist() for p in alone.parameters()], expected

    assert [same for same, _ in run(body, 3)] == [True] * 3


def test_a_closure_computes_the_gradients():
    def body(rank):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.LBFGS, lr=0.1, max_iter=2)
        x = weft.ones(2, 5, dtype=weft.float64)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        return optimizer.step(closure).item() > closure().item()

    assert run(body, 1) == [True]


def test_what_cannot_be_is_refused(caplog):
    def body(rank):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.SGD, lr=0.1)
        with pytest.raises(RuntimeError, match=r"^Optimizer state has not been .*`consolidate_state_dict\(to=0\)`"):
            optimizer.state_dict()
        with pytest.raises(ValueError, match=r"^Passing in a functional optimizer .*_FunctionalAdam"):
            ZeroRedundancyOptimizer(model.parameters(), _FunctionalAdam)
        with pytest.raises(ValueError, match="must be constructed with `overlap_with_ddp=True`"):
            ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, model, optimizer)
        with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
            ZeroRedundancyOptimizer([], optim.SGD)
        overlapped = ZeroRedundancyOptimizer(model.parameters(), optim.SGD, overlap_with_ddp=True)
        other = DistributedDataParallel(network(), process_group=dist.new_group([0]))
        with pytest.raises(ValueError, match="need the same process group"):
            ddp_zero_hook.hook_with_zero_step_interleaved(default_hooks.allreduce_hook, other, overlapped)
        assert overlapped.step() is None

    with caplog.at_level(logging.WARNING):
        run(body, 1)
    assert "`step()` should not be included in the training loop" in caplog.text
