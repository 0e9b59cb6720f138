"""Replicas and `weft.compile`: of the module, or of the whole step with its averages."""

from __future__ import annotations

import warnings
from datetime import timedelta

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft._tensor.compile import Compiled
from weft.errors import CompileError
from weft.nn.parallel import DistributedDataParallel

STEPS = 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        return self.outer(self.norm(self.inner(x).tanh()))


def trained(make, whole=lambda step: step, accumulates=False):
    """By rank, the state of the replica after some steps; with `accumulates`, a step has two backward passes."""

    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        weft.manual_seed(0)
        model = make(Model())
        optimizer = weft.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            if accumulates:
                with model.no_sync():
                    model(x + 1).square().mean().backward()
            model(x).square().mean().backward()
            optimizer.step()

        step = whole(step)
        for x in weft.arange(12.0 * STEPS).reshape(STEPS, 4, 3).sin():
            step(x[rank::2].clone())
        return {name.replace("_orig_mod.", ""): value.tolist() for name, value in model.state_dict().items()}

    return dist.run_threads(body)


@pytest.fixture(scope="module")
def plain():
    return trained(DistributedDataParallel)


def compiled_in_place(module):
    model = DistributedDataParallel(module)
    model.compile()
    return model


FORMS = {
    "the module": lambda module: DistributedDataParallel(weft.compile(module)),
    "the replica": lambda module: weft.compile(DistributedDataParallel(module)),
    "the replica, in place": compiled_in_place,
    "the whole graph": lambda module: weft.compile(DistributedDataParallel(module), fullgraph=True),
}


@pytest.fixture
def runs(monkeypatch):
    """A mark for each time that Python ran a compiled function."""
    marks = []
    run = Compiled._run

    def marking(*args):
        marks.append(1)
        return run(*args)

    monkeypatch.setattr(Compiled, "_run", marking)
    return marks


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
def test_a_compiled_module_trains_as_any_other(make, plain, runs):
    check_are_alike(trained(make), plain)
    assert 2 <= len(runs) < 2 * STEPS  # captured, on each rank


def check_are_alike(states, expected):
    for ours, theirs in zip(states, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert weft.allclose(weft.tensor(ours[name]), weft.tensor(value), rtol=1e-4, atol=1e-5), name


def compiled_whole(step):
    return weft.compile(step, fullgraph=True)


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_step_is_captured_with_its_averages(accumulates, runs):
    plain = trained(DistributedDataParallel, accumulates=accumulates)
    check_are_alike(trained(DistributedDataParallel, compiled_whole, accumulates), plain)
    assert 2 <= len(runs) < 2 * STEPS


def looking_for_unused(module):
    return DistributedDataParallel(module, find_unused_parameters=True)


TELLS = r"needs the ranks that a DistributedDataParallel averages over \(compile the module that it wraps, .*\) at "


def test_a_step_that_needs_values_runs_uncaptured_and_says_what_to_compile():
    plain = trained(looking_for_unused)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert trained(looking_for_unused, weft.compile) == plain
    assert [str(w.message).startswith("weft.compile: step needs the ranks that") for w in caught] == [True, True]


def test_a_step_that_needs_values_and_must_be_captured_whole_is_refused():
    with pytest.raises(CompileError, match=rf"step: the function {TELLS}.*test_ddp_compile\.py:\d+, so it cannot"):
        trained(looking_for_unused, compiled_whole)


def test_a_captured_step_between_others_follows_their_order_of_buckets(plain):
    """A step that is not captured lets the ranks agree on an order, which the captured one has to follow."""

    def now_and_then(step):
        compiled, count = compiled_whole(step), 0

        def run(x):
            nonlocal count
            count += 1
            return (step if count == 2 else compiled)(x)

        return run

    check_are_alike(trained(DistributedDataParallel, now_and_then), plain)


def test_messages_end_a_capture():
    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))

        def doubled(x):
            x = 2 * x
            dist.isend(x, 1 - rank)
            dist.recv(x, 1 - rank)
            return x

        with pytest.raises(CompileError, match=r"doubled: the function needs other ranks, by a collective, at "):
            weft.compile(doubled, fullgraph=True)(weft.ones(1))

    dist.run_threads(body)


def test_the_compiled_form_of_a_replica_gives_the_rest_of_it():
    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        module = nn.Linear(1, 1, bias=False)
        replica = DistributedDataParallel(module)
        model = weft.compile(replica)
        assert model.module is module
        with model.no_sync():
            model(weft.full((1, 1), rank + 1.0)).backward()
        alone = module.weight.grad.item()
        replica(weft.full((1, 1), 10.0)).backward()
        return alone, module.weight.grad.item()

    assert dist.run_threads(body) == [(1, 11.5), (2, 11.5)]
