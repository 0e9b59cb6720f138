"""An optimizer that averages the parameters after its steps."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from weft.distributed.optim import PostLocalSGDOptimizer


def run(body, nprocs=2):
    def rank_of(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        return body(rank)

    return dist.run_threads(rank_of, nprocs=nprocs)


def made(value=0.0, period=2, warmup=1, momentum=0.0):
    w = nn.Parameter(weft.tensor([value]))
    inner = weft.optim.SGD([w], lr=1.0, momentum=momentum)
    return w, PostLocalSGDOptimizer(inner, PeriodicModelAverager(period, warmup))


def trained(w, optimizer, rank, steps):
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        (w * -(1.0 + rank)).sum().backward()  # a step adds 1 + rank
        optimizer.step()
        found.append(w.item())
    return found


def test_steps_are_local_and_averages_come_now_and_then():
    assert run(lambda rank: trained(*made(), rank, 4)) == [[1, 3, 4, 6], [2, 3, 5, 6]]


def test_a_resumed_run_averages_when_the_first_would_have():
    def body(rank):
        w, optimizer = made(momentum=0.5)
        trained(w, optimizer, rank, 2)
        saved = optimizer.state_dict()
        assert saved["step"] == 2
        again, other = made(w.item(), momentum=0.5)
        other.load_state_dict(saved)
        assert other.averager.step == 2
        assert other.param_groups is other.optim.param_groups
        assert other.state is other.optim.state
        return trained(again, other, rank, 3) == trained(w, optimizer, rank, 3)

    assert run(body) == [True, True]


def test_a_state_dict_without_the_step_begins_anew():
    def body(rank):
        _, optimizer = made()
        optimizer.averager.step = 3
        with pytest.warns(UserWarning, match="^Loaded state dict does not contain a step counter for an averager"):
            optimizer.load_state_dict(optimizer.optim.state_dict())
        return optimizer.averager.step

    assert run(body, 1) == [0]


def test_it_is_an_optimizer():
    def body(rank):
        w, optimizer = made()
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append("hook"))
        weft.optim.lr_scheduler.StepLR(optimizer, 1)
        other = nn.Parameter(weft.ones(1))
        optimizer.add_param_group({"params": [other], "lr": 0.5})
        trained(w, optimizer, rank, 1)
        assert calls == ["hook"]
        assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
        assert repr(optimizer) == repr(optimizer.optim)
        before = w.item()
        return optimizer.step(lambda: w.sum()).item() == before

    assert run(body, 1) == [True]
