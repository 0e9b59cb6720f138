"""Twins in the extension: they take the common calls, and leave no difference, no reference and no value behind."""

from __future__ import annotations

import gc
import sys

import pytest

import weft as torch
from weft._base import config
from weft._base.flight import Flight
from weft._base.state import ambient
from weft._lazy import flushing, plan, running
from weft._lazy.ledger import ledgers
from weft._lazy.native import native
from weft._lazy.role import INTERIOR
from weft._lazy.value import PENDING, Executed, Value
from weft._tensor.state import NO_FACTS
from weft.errors import IndexRangeError

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built, or turned off")
INTERPRETED = pytest.mark.skipif(config.TIER == "compiled", reason="nothing is interpreted")


def nobody_looks_on(monkeypatch):
    """An earlier test may have asked what is in memory."""
    for device in [*ledgers]:
        monkeypatch.delitem(ledgers, device)
    monkeypatch.setattr(Flight, "recorder", None)


@pytest.fixture
def planned(monkeypatch):
    """How many graphs Python has planned or computed at once."""
    nobody_looks_on(monkeypatch)
    counts = []
    planning, at_once = flushing.plan, running._evaluated
    monkeypatch.setattr(flushing, "plan", lambda *args: counts.append("plan") or planning(*args))
    monkeypatch.setattr(running, "_evaluated", lambda values: counts.append("at once") or at_once(values))
    return counts


def model():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    x, y = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])
    assert torch.isfinite(layers(x)).all()  # so that nothing of what was drawn is pending
    return layers, x, y


def loss_of(layers, x, y):
    return torch.nn.functional.cross_entropy(layers(x), y)


@INTERPRETED
def test_a_step_is_planned_by_the_extension(planned):
    layers, x, y = model()
    planned.clear()
    loss = loss_of(layers, x, y)
    loss.backward()
    assert loss.item() > 0
    assert layers[0].weight.grad.abs().sum().item() > 0
    assert planned == []


@INTERPRETED
def test_what_is_read_between_a_pass_and_its_derivative_is_computed_once(monkeypatch):
    layers, x, y = model()
    nobody_looks_on(monkeypatch)
    sizes = []

    def program_of(entries, steps, *rest):
        sizes.append(len(steps))
        return plan._interpretable(entries, steps, *rest)

    native.forget_programs()
    native.bind(program_of=program_of)
    try:
        loss = loss_of(layers, x, y)
        loss.item()
        loss.backward()
        layers[0].weight.grad.tolist()
    finally:
        native.bind(program_of=plan._interpretable)
    forward, derivative = sizes
    assert 0 < derivative < 3 * forward  # the derivative's own applications, and not the forward pass again


def test_a_bad_index_that_is_computed_is_found():
    table, index = torch.arange(6.0).reshape(3, 2), torch.tensor([0, 3])
    bad = table[index + 0]
    assert table[index * 0].tolist() == [[0, 1], [0, 1]]
    with pytest.raises(IndexRangeError, match="index 3 is out of bounds"):
        bad.tolist()
    with pytest.raises(IndexRangeError, match="index 3 is out of bounds"):  # at every read
        (bad + 1).tolist()


@INTERPRETED
def test_an_error_leaves_everything_pending(monkeypatch):
    nobody_looks_on(monkeypatch)
    x = torch.ones(3) + 1
    result = x * 2

    def fails(*_):
        raise ValueError("no machine")

    native.forget_programs()
    native.bind(program_of=fails)
    try:
        before = len(ambient().pending)
        assert not native.flush(ambient().pending)
        assert len(ambient().pending) == before
    finally:
        native.bind(program_of=plan._interpretable)
    assert result.tolist() == [4, 4, 4]


@INTERPRETED
def test_a_signal_within_leaves_everything_pending(monkeypatch):
    nobody_looks_on(monkeypatch)
    result = torch.ones(3) * 5

    def interrupted(*_):
        raise KeyboardInterrupt

    native.forget_programs()
    native.bind(program_of=interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            native.flush(ambient().pending)
    finally:
        native.bind(program_of=plan._interpretable)
    assert result.tolist() == [5, 5, 5]


def test_nothing_is_left_behind():
    layers, x, y = model()
    constants = (PENDING, NO_FACTS, INTERIOR, None, True, ())

    def step():
        loss = loss_of(layers, x, y)
        loss.backward()
        loss.item()
        layers.zero_grad()

    def counted():
        gc.collect()
        kinds = [type(x) for x in gc.get_objects()]
        objects = {kind: kinds.count(kind) for kind in (Value, Executed, torch.Tensor)}
        return objects, [sys.getrefcount(constant) for constant in constants]

    for _ in range(5):
        step()
    objects, references = counted()
    for _ in range(200):
        step()
    after, references_after = counted()
    assert after == objects
    assert all(abs(b - a) < 100 for a, b in zip(references, references_after, strict=True))


def test_a_call_with_anything_special_goes_to_python(planned):
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        assert (x + 1).is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    with torch.no_grad():
        assert not (x + 1).requires_grad
    assert (x + 1).requires_grad
    assert (torch.ones(2, device="meta") + 1).device.type == "meta"
    assert (torch.ones(2, names=("n",)) + 1).names == ("n",)
    with pytest.raises(OverflowError):
        x + 2**70
