"""One way of recording: what is inlined for speed says the same, and the modes see whatever is recorded."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import weft
import weft._lazy.record as record_module
from weft._base.state import ambient, using
from weft._lazy.value import Value
from weft._tensor import fast_path

ROOT = Path(weft.__file__).parent


def assignments(function):
    """The attributes of a new value in the order in which a function sets them, with what they are set to."""
    tree = ast.parse(inspect.getsource(function))
    targets = [
        (node.targets[0].attr, ast.unparse(node.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and ast.unparse(node.targets[0].value) == "value"
    ]
    return dict(targets)


@pytest.mark.parametrize(("inlined", "inputs"), [(fast_path.unary, "(x,)"), (fast_path.binary, "(a, b)")])
def test_the_common_call_sets_what_recording_sets(inlined, inputs):
    general, fast = assignments(record_module.recorded), assignments(inlined)
    assert fast.pop("inputs") == inputs
    assert "origin.taped" in fast.pop("tape")
    general.pop("inputs"), general.pop("tape")
    assert fast == general


def test_values_are_made_in_known_places():
    makers = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if "_new(Value)" in path.read_text(encoding="utf-8")
    }
    assert makers == {"_lazy/value.py", "_tensor/fast_path.py"}
    lists = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "pending.append(" in path.read_text(encoding="utf-8")
    }
    assert lists == {"_lazy/value.py", "_tensor/fast_path.py"}


def slots(value):
    return {name: getattr(value, name) for name in ("origin", "inputs", "aval", "array", "extras", "num", "tape")}


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_common_call_gives_what_the_general_one_gives(requires_grad):
    x, y = weft.ones(2, requires_grad=requires_grad), weft.ones(2)
    _ = x + y  # the signature is known from here on
    fast = x + y
    assert slots(fast._value) == slots(weft.add(x, y, alpha=1)._value)
    with using(anomaly=True):  # no common call
        assert (x + y)._value.origin is fast._value.origin


def test_eager_mode_sees_the_backward_pass(monkeypatch):
    x = weft.ones(3, requires_grad=True)
    made = []
    with using(eager=True):
        loss = (x * 2).tanh().exp().sum()
        loss.register_hook(lambda g: made.append(ambient().pending[:]))
        x.register_hook(lambda g: made.append(g._read().array is not None))
        loss.backward()
        assert not ambient().pending
        assert isinstance(x.grad._value, Value)
        assert x.grad._value.array is not None
    assert made == [[], True]


def test_a_capture_sees_what_a_derivative_reads_anew():
    x = weft.tensor([[1.0, 5.0], [3.0, 2.0]], requires_grad=True)

    @weft.compile
    def step():
        values, _ = x.max(1)
        values.sum().backward()
        gradient, x.grad = x.grad, None
        return gradient

    assert step().tolist() == [[0, 1], [1, 0]]
    with weft.no_grad():
        x.copy_(weft.tensor([[7.0, 5.0], [3.0, 9.0]]))
    assert step().tolist() == [[1, 0], [0, 1]]
