"""Segments: what repeats itself is compiled once, and nothing else is different."""

from __future__ import annotations

from contextlib import suppress
from weakref import WeakValueDictionary

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft import nn
from weft._base import config
from weft._lazy import compiled_graph, program, segments

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setattr(compiled_graph, "_programs", WeakValueDictionary())


def network(count):
    weft.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(64, 2, 64, dropout=0.0, batch_first=True) for _ in range(count)]
    return nn.Sequential(nn.Linear(3, 64), *layers, nn.Linear(64, 1))


def train(model, steps, seen):
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = weft.linspace(0, 1, 2 * 5 * 3).reshape(2, 5, 3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        with suppress(KeyboardInterrupt):
            optimizer.step()
        losses.append(loss.item())
        seen()
    return losses


def test_equal_layers_share_programs_within_and_between_graphs(compilations):
    model = network(8)
    list(map(weft.Tensor.tolist, model.parameters()))
    compilations()
    entries = []
    train(model, 3, lambda: entries.append((compilations(), len(compiled_graph._programs))))
    (first, after_first), (second, after_second), (third, _) = entries
    assert first[0].segments >= 2 * 7  # most layers, forward and backward
    assert first[0].programs <= first[0].segments - 2 * 5
    assert f"in {first[0].segments} segments, {first[0].programs} different" in str(first[0])
    assert second[0].programs == first[0].programs  # the optimizer has got a state: another graph
    assert after_second - after_first <= 2
    assert not third


@pytest.mark.soak
def test_training_in_segments_gives_what_the_interpreter_gives(compilations, monkeypatch):
    compiled = network(6)
    losses = train(compiled, 3, lambda: None)
    assert max(c.segments for c in compilations()) > 6
    monkeypatch.setattr(config, "TIER", "interpreted")
    interpreted = network(6)
    assert losses == pytest.approx(train(interpreted, 3, lambda: None), rel=1e-4)
    for a, b in zip(compiled.parameters(), interpreted.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.soak
def test_nothing_is_lost_when_a_compilation_is_interrupted(compilations, monkeypatch):
    expected = train(network(6), 2, lambda: None)
    segments = max(c.segments for c in compilations())
    model = network(6)
    list(map(weft.Tensor.tolist, model.parameters()))
    compiled, programs, interruptions = compiled_graph.compiled, [], [KeyboardInterrupt]

    def interrupted(body, where, donated=()):
        programs.append(compiled(body, where, donated))
        program, third = programs[-1], len(programs) == 3

        def run(*leaves):
            if third and interruptions:
                raise interruptions.pop()
            return program(*leaves)

        return run

    monkeypatch.setattr(program, "_programs", {})
    monkeypatch.setattr(compiled_graph, "_programs", WeakValueDictionary())
    monkeypatch.setattr(compiled_graph, "compiled", interrupted)
    assert train(model, 2, lambda: None) == expected
    assert segments > 6
    assert not interruptions


OPERATIONS = [
    lambda x, y: x * 1.5 - y,
    lambda x, y: weft.tanh(x) + y,
    lambda x, y: (x @ y).softmax(0),
    lambda x, y: weft.maximum(x, y.sin()),
    lambda x, y: x.flip(0).cumsum(1) * 0.1,
]


@st.composite
def repeating(draw):
    """Operators with the two of the last five results that they take; most of a program is repeated."""
    operation = st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(1, 5), st.integers(1, 5))
    stretches = draw(
        st.lists(st.tuples(st.lists(operation, min_size=3, max_size=9), st.integers(1, 5)), min_size=1, max_size=4)
    )
    return [step for stretch, count in stretches for step in stretch * count]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=settings.default.max_examples // 5)
@given(repeating(), st.data())
def test_any_program_gives_in_segments_what_it_gives_otherwise(monkeypatch, steps, data):
    held = sorted(data.draw(st.sets(st.integers(0, len(steps) - 1), min_size=1)))

    def run(tier):
        monkeypatch.setattr(config, "TIER", tier)
        values = [weft.linspace(at, 1, 16).reshape(4, 4) for at in range(5)]
        for operation, left, right in steps:
            values.append(OPERATIONS[operation](values[-left], values[-right]))
        kept = [values[5 + at] for at in held]
        values.clear()
        return [value.numpy() for value in kept]

    monkeypatch.setattr(segments, "_CALL", 0.0)
    monkeypatch.setattr(segments, "_LEAST_SAVED", 1e-3)
    monkeypatch.setattr(segments, "_LEAST_APPLICATIONS", 3)
    for compiled, interpreted in zip(run("compiled"), run("interpreted"), strict=True):
        np.testing.assert_allclose(compiled, interpreted, rtol=1e-4, atol=1e-5)
