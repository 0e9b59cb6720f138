"""What the parts of the package tell the launcher of: optimizers, loaders, compilations, accelerators."""

from __future__ import annotations

from time import monotonic

import pytest

import weft
from weft import nn
from weft._base.activity import SIZE, Activity, process, read
from weft._lazy import runtime
from weft.utils.data import DataLoader, TensorDataset


@pytest.fixture
def told(monkeypatch):
    """What this process tells, as if `weft run` had started it."""
    memory = memoryview(bytearray(SIZE))
    monkeypatch.setattr(process, "activity", Activity(memory))
    return lambda: read(memory, monotonic())


def test_steps_and_batches(told):
    model = nn.Linear(3, 1)
    optimizer = weft.optim.Adam(model.parameters())
    for (x,) in DataLoader(TensorDataset(weft.randn(8, 3)), batch_size=2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    numbers = told().numbers
    assert (numbers["steps"], numbers["batches"]) == (4, 4)
    assert 0 < numbers["data_seconds"] < monotonic() - numbers["progress"] + 60


def test_a_captured_step_counts_at_each_replay(told):
    model = nn.Linear(3, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step(weft.ones(2, 3))
    assert told().numbers["steps"] == 5


@pytest.mark.compiled
def test_compilations(told):
    before = len(weft.explain())
    with weft.no_grad():
        step = weft.compile(lambda x: (x * 3).sin() - 1)
        step(weft.ones(7)).tolist()
        step(weft.ones(7)).tolist()
    numbers = told().numbers
    assert numbers["compilations"] == len(weft.explain()) - before > 0
    assert numbers["compile_seconds"] > 0


def test_the_memory_of_accelerators(told, monkeypatch):
    class Accelerator:  # there is none where these tests run
        def memory_stats(self):
            return {"bytes_in_use": 3 << 30, "bytes_limit": 80 << 30}

    monkeypatch.setattr(runtime, "_accelerators", {0: Accelerator(), 1: Accelerator()})
    weight = weft.ones(1, requires_grad=True)
    optimizer = weft.optim.SGD([weight])
    weight.sum().backward()
    optimizer.step()
    assert (told().numbers["device_bytes"], told().numbers["device_limit"]) == (6 << 30, 160 << 30)
