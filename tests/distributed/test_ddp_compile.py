"""Replicas and `weft.compile`: the module is compiled, the averages stay outside."""

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


def trained(make, whole=lambda step: step):
    """By rank, the state of the replica after some steps."""

    def body(rank):
        dist.init_process_group("threads", timeout=timedelta(seconds=60))
        weft.manual_seed(0)
        model = make(Model())
        optimizer = weft.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
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
    states = trained(make)
    assert 2 <= len(runs) < 2 * STEPS  # captured, on each rank
    for found, expected in zip(states, plain, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert weft.allclose(weft.tensor(found[name]), weft.tensor(value), rtol=1e-4, atol=1e-5), name


TELLS = r"needs the ranks that a DistributedDataParallel averages over \(compile the module that it wraps, .*\) at "


def test_a_compiled_step_runs_uncaptured_and_says_what_to_compile(plain):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert trained(DistributedDataParallel, weft.compile) == plain
    assert [str(w.message).startswith("weft.compile: step needs the ranks that") for w in caught] == [True, True]


def test_a_step_that_must_be_captured_whole_is_refused():
    with pytest.raises(CompileError, match=rf"step: the function {TELLS}.*test_ddp_compile\.py:\d+, so it cannot"):
        trained(DistributedDataParallel, lambda step: weft.compile(step, fullgraph=True))


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
