"""Counting holders: what the interpreter adds is found out, and where it cannot be, nothing is dropped or donated."""

from __future__ import annotations

import sys
from sys import getrefcount
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft._base import config
from weft._base.state import Pending, ambient, using
from weft._lazy import liveness, plan, refcounts, running
from weft._lazy.refcounts import UNKNOWN, WAYS, calibrated

SIZE = 1024  # floats, as many as are worth donating


def borrowed(count):
    """Counts by an interpreter that makes one reference less."""
    return lambda values: count(values) - 1


# --- calibration ---


def test_counts_are_trusted_here():
    assert refcounts.IN_A_LOCAL == calibrated(WAYS) != UNKNOWN


def test_references_that_the_interpreter_borrows_are_not_expected():
    assert calibrated(tuple(map(borrowed, WAYS))) == refcounts.IN_A_LOCAL - 1


@pytest.mark.parametrize(
    "count",
    [borrowed(WAYS[0]), lambda values: WAYS[0](values) + 1, lambda values: id(values[0]) % 7, lambda values: 2**32],
    ids=["another one counts otherwise", "somebody else holds it", "no count", "immortal"],
)
def test_counts_that_do_not_follow_the_holders_are_not_trusted(count):
    assert calibrated((*WAYS, count)) == UNKNOWN


def test_counts_that_another_thread_may_change_are_not_trusted(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert calibrated(WAYS) == UNKNOWN


def test_counts_that_a_compiler_may_leave_out_are_not_trusted(monkeypatch):
    monkeypatch.setattr(sys, "_jit", SimpleNamespace(is_enabled=lambda: True), raising=False)
    assert calibrated(WAYS) == UNKNOWN


def test_counts_are_not_trusted_where_a_tracer_holds_what_is_counted():
    held = []

    def tracer(frame, event, arg):
        held.append(dict(frame.f_locals))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        found = calibrated(WAYS)
    finally:
        sys.settrace(before)
    assert held
    assert found == UNKNOWN


# --- what depends on it ---


@pytest.fixture
def donated(monkeypatch):
    """How many buffers each program was given."""
    numbers = []
    monkeypatch.setattr(config, "TIER", "compiled")
    run = running.execute

    def spy(program, graph, *rest):
        numbers.append(len(graph.donated))
        return run(program, graph, *rest)

    monkeypatch.setattr(running, "execute", spy)
    return numbers


def unknown(monkeypatch):
    monkeypatch.setattr(refcounts, "IN_A_LOCAL", UNKNOWN)


def borrowing(monkeypatch):
    """An interpreter that makes one reference less; a further one is that of the function that stands in."""
    for module in (plan, liveness):
        monkeypatch.setattr(module, "getrefcount", lambda value: getrefcount(value) - STANDING_IN - 1)
    monkeypatch.setattr(refcounts, "IN_A_LOCAL", refcounts.IN_A_LOCAL - 1)


STANDING_IN = (lambda value: getrefcount(value))(object()) - 1  # what a parameter adds


INTERPRETERS = {"this one": lambda monkeypatch: None, "unknown": unknown, "borrowing": borrowing}


def change_of_one_holder():
    x = weft.ones(SIZE)
    x.tolist()
    x = x + 1
    return x.sum().item()


@pytest.mark.parametrize("interpreter", ["this one", "borrowing"])
def test_a_buffer_without_holder_is_donated(donated, monkeypatch, interpreter):
    INTERPRETERS[interpreter](monkeypatch)
    assert change_of_one_holder() == 2 * SIZE
    assert sum(donated) == 1


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize(
    "holders_of", [lambda x: [x], lambda x: [x._value.content], lambda x: [x._value, x._value.content]]
)
def test_a_buffer_with_a_holder_is_not_donated(donated, monkeypatch, interpreter, holders_of):
    INTERPRETERS[interpreter](monkeypatch)
    x = weft.ones(SIZE)
    x.tolist()
    kept = holders_of(x)
    x = x + 1
    kept.append(x._value)  # held twice, a result is seen to be held even by who counts one reference too few
    assert x.sum().item() == 2 * SIZE
    assert len(donated) == 2
    assert not any(donated)


def test_nothing_is_donated_where_counts_are_unknown(donated, monkeypatch):
    unknown(monkeypatch)
    assert change_of_one_holder() == 2 * SIZE
    assert donated
    assert not any(donated)


def test_nothing_is_dropped_where_counts_are_unknown(monkeypatch, compilations):
    unknown(monkeypatch)
    x = weft.ones(3)
    x * 2
    assert (x + 1).tolist() == [2, 2, 2]
    assert [c.operators for c in compilations()] == [3]
    assert not ambient().pending


def step_of_attention():
    layer = weft.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    return layer, lambda: layer(weft.ones(2, 4, 32)).square().mean()


def step_of_an_embedding_by_computed_indices():
    layer = weft.nn.Embedding(64, 32)
    return layer, lambda: layer((weft.ones(4) * 2).long()).square().mean()


def step_of_a_batch_norm():
    layer = weft.nn.Sequential(weft.nn.Conv2d(8, 32, 3), weft.nn.BatchNorm2d(32), weft.nn.Dropout(0.1))
    return layer, lambda: layer(weft.ones(2, 8, 6, 6)).square().mean()


MODELS = [step_of_attention, step_of_an_embedding_by_computed_indices, step_of_a_batch_norm]


@pytest.mark.parametrize("model", MODELS)
def test_each_step_of_training_gives_its_parameters_to_the_next(donated, model):
    layer, loss_of = model()
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    assert [n for n in donated if n] == 3 * [sum(p.nbytes >= 4096 for p in layer.parameters())]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "scale", "write", "write a part", "view", "drop", "read", "role"]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=12,
)


def run(steps):
    """What a program leaves in its four variables, by Weft and by NumPy."""
    tensors = [weft.full((SIZE,), float(n)) for n in range(4)]
    arrays = [np.full(SIZE, float(n), np.float32) for n in range(4)]
    for step, i, j in steps:
        match step:
            case "add":
                tensors[i], arrays[i] = (tensors[i] + tensors[j]) * 0.5, (arrays[i] + arrays[j]) * np.float32(0.5)
            case "scale":
                tensors[i], arrays[i] = -tensors[i] * 0.5, -arrays[i] * np.float32(0.5)
            case "write":
                tensors[i].copy_(tensors[j] + 1), np.copyto(arrays[i], arrays[j] + 1)
            case "write a part":
                tensors[i][j::4] = 2.0
                arrays[i][j::4] = 2
            case "view":
                tensors[i], arrays[i] = tensors[j][:], arrays[j][:]
            case "drop":
                tensors[i], arrays[i] = weft.ones(SIZE), np.ones(SIZE, np.float32)
            case "read":
                np.testing.assert_array_equal(tensors[i].numpy(), arrays[i])
            case "role":
                leaf = tensors[i].detach().clone().requires_grad_()
                (leaf * leaf * 0.5).sum().backward()
                tensors[j], arrays[j] = leaf.grad, arrays[i].copy()
    return tensors, arrays


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", ["unknown", "borrowing"])
@given(steps=STEPS)
def test_programs_compute_the_same_however_holders_are_counted(interpreter, steps):
    with pytest.MonkeyPatch.context() as monkeypatch, using(pending=Pending()):
        INTERPRETERS[interpreter](monkeypatch)
        for tensor, array in zip(*run(steps), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_compiled_step_is_given_what_it_replaces(donated):
    weight = weft.ones(SIZE)

    @weft.compile
    def step():
        weight.mul_(2)

    for _ in range(5):
        step()
    assert donated[-3:] == [1, 1, 1]
    assert weight[0].item() == 32
