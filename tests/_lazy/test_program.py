"""Programs: what makes two graphs the same, and what is said while one is compiled."""

from __future__ import annotations

import sys
import threading

import pytest

import weft
from weft._base import config
from weft._lazy import program

pytestmark = pytest.mark.compiled


def test_the_same_graph_compiles_once(compilations):
    def step(x):
        return ((x * 2).relu() + x).sum().item()

    assert step(weft.tensor([1.0, 1.0, 1.0])) == 9
    assert len(compilations()) == 1
    assert step(weft.tensor([1.0, -1.0, 2.0])) == 8
    assert not compilations()


def _assigned(x, n):
    y = x.clone()
    y[0] = n
    return y


NUMBERS = [
    ("times", lambda x, n: x * n, (0.5, 0.25)),
    ("plus", lambda x, n: x + n, (1, 2)),
    ("from", lambda x, n: n - x, (1.0, 2.0)),
    ("alpha", lambda x, n: x.add(x, alpha=n), (2, 3)),
    ("fill", lambda x, n: x.clone().fill_(n), (2.0, 3.0)),
    ("bounds", lambda x, n: x.clamp(0.0, n), (2.0, 3.0)),
    ("assigned", _assigned, (2.0, 3.0)),
]
STATICS = [
    ("exponent", lambda x, n: x**n, (2, 3)),
    ("dim", lambda x, n: x.sum(n), (0, 1)),
    ("shape", lambda x, n: x.reshape(n, -1), (1, 4)),
    ("flag", lambda x, n: x.sum(0, keepdim=n), (True, False)),
]


@pytest.mark.parametrize(("function", "values"), [row[1:] for row in NUMBERS], ids=[row[0] for row in NUMBERS])
def test_another_number_compiles_nothing(compilations, function, values):
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    first = function(x, values[0]).tolist()
    assert len(compilations()) == 1
    assert function(x, values[1]).tolist() != first
    assert not compilations()


@pytest.mark.parametrize(("function", "values"), [row[1:] for row in STATICS], ids=[row[0] for row in STATICS])
def test_another_exponent_dim_or_shape_compiles(compilations, function, values):
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    results = [function(x, value).tolist() for value in values]
    assert results[0] != results[1]
    assert len(compilations()) == 2


def test_numbers_of_all_kinds_travel_together():
    x = weft.tensor([1.0, 2.0])
    assert ((x * 2 + 0.5) * True + 1j).tolist() == [2.5 + 1j, 4.5 + 1j]


def test_the_cache_of_programs_is_bounded(monkeypatch):
    monkeypatch.setattr(program, "_programs", {})
    monkeypatch.setattr(program, "_MOST_MAPS", 2 * (4 + 1))
    x = weft.ones(2)
    for dim in (0, -1):
        for keepdim in (False, True):
            x.sum(dim, keepdim=keepdim).tolist()
    x.exp().tolist()
    assert len(program._programs) == 2


class _Listener:
    """A stderr that tells when something was written."""

    def __init__(self):
        self.text = ""
        self.written = threading.Event()

    def write(self, text):
        self.text += text
        self.written.set()

    def flush(self):
        pass


def test_a_slow_compilation_says_so_while_it_runs(compilations, monkeypatch):
    listener = _Listener()
    run = program.Program.__call__

    def slow(self, *args):
        assert listener.written.wait(60), "nothing was said"
        return run(self, *args)

    monkeypatch.setattr(config, "SLOW_COMPILE_SECONDS", 0.001)
    monkeypatch.setattr(program.Program, "__call__", slow)
    y = weft.ones(2) + 1
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", listener)
        y.tolist()
    assert listener.text.startswith("weft: compiling 2 operators for ")
    assert "test_program.py:" in listener.text
