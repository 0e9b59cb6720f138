"""Python state that a captured function reads: whatever changes is seen by the next call."""

from __future__ import annotations

import functools
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests._tensor.compile.programs import agree, captures, row
from weft import nn

SCALE = 2.0
THREADS = 4


def scaled(x):
    return x * SCALE


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        weft.manual_seed(0)
        self.inner = nn.Linear(2, 2)
        self.plain = row(1, 2)
        self.listed = [row(1, 1), row(2, 2)]
        self.table = {"a": row(1, 0)}
        self.scale = 2.0
        self.options = SimpleNamespace(shift=3.0)
        self.unread = 0

    def forward(self, x):
        x = self.inner(x) * self.plain + sum(self.listed)
        return x + self.table["a"] * self.scale + self.options.shift


def replace(name, value):
    return lambda model: setattr(model, name, value())


CHANGES = {
    "a plain tensor": replace("plain", lambda: row(5, 6)),
    "an item of a list": lambda model: model.listed.__setitem__(0, row(7, 7)),
    "one more item": lambda model: model.listed.append(row(1, 1)),
    "an item of a dict": lambda model: model.table.update(a=row(9, 9)),
    "a number": replace("scale", lambda: 4.0),
    "a number of an object": lambda model: setattr(model.options, "shift", 1.0),
    "a parameter": lambda model: setattr(model.inner, "weight", nn.Parameter(weft.ones(2, 2))),
    "a module": replace("inner", lambda: nn.Linear(2, 2, bias=False)),
    "data of another type": lambda model: model.double(),
    "forward": lambda model: setattr(model, "forward", lambda x: x + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_module_reads_may_be_replaced(change):
    model = Model()
    compiled = weft.compile(model)
    x = row(1, 2)
    for _ in range(3):
        assert weft.allclose(compiled(x), model(x))
    assert captures(compiled) == 1
    change(model)
    x = x.to(model.inner.weight.dtype)
    for _ in range(3):
        assert weft.allclose(compiled(x), model(x))
    assert captures(compiled) == 2


def test_what_it_does_not_name_may_change():
    model = Model()
    compiled = weft.compile(model)
    for at in range(3):
        compiled(row(1, 2))
        model.unread = at
    assert captures(compiled) == 1


def test_requires_grad_and_modes_are_seen():
    model = Model()
    compiled = weft.compile(model)
    x = row(1, 2)
    flags = []
    for wanted in (True, False, True):
        model.requires_grad_(wanted)
        flags.append(compiled(x).requires_grad)
        with weft.no_grad():
            flags.append(compiled(x).requires_grad)
    assert flags == [True, False, False, False, True, False]
    assert captures(compiled) == 4


def test_globals_of_functions_that_it_calls(monkeypatch):
    compiled = weft.compile(lambda x: scaled(x) + 1)
    assert [compiled(row(1)).item() for _ in range(2)] == [3, 3]
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert [compiled(row(1)).item() for _ in range(2)] == [8, 8]
    monkeypatch.setitem(globals(), "scaled", lambda x: x * 100)
    assert [compiled(row(1)).item() for _ in range(2)] == [101, 101]
    assert captures(compiled) == 3


def test_a_name_after_a_dot_is_no_global(monkeypatch):
    monkeypatch.setitem(globals(), "mean", 0)
    compiled = weft.compile(lambda x: x.mean())
    for at in range(3):
        monkeypatch.setitem(globals(), "mean", at)
        compiled(row(1))
    assert captures(compiled) == 1


def closed_over():
    number, names = 2.0, deque(["a"])

    def inner(x):
        return x * number + len(names)

    def function(x):
        return inner(x)

    def change():
        nonlocal number
        number = 5.0
        names.append("b")

    return function, change


def partial():
    def inner(x, k, *, shift=1.0):
        return x * k + shift

    function = functools.partial(inner, k=3)

    def change():
        function.keywords["k"] = 5
        inner.__kwdefaults__ = {"shift": 2.0}

    return function, change


def an_object():
    class Scaling:
        factor = 1.0

        def __init__(self):
            self.shift = 2.0

        @property
        def both(self):
            return self.factor + self.shift

        def __call__(self, x):
            return x * self.both

    scaling = Scaling()

    def change():
        Scaling.factor = 3.0

    return scaling, change


def slots():
    class Options:
        __slots__ = ("rate",)

    options = Options()
    options.rate = 2.0

    def change():
        options.rate = 3.0

    return (lambda x: x * options.rate), change


def defaults():
    def function(x, k=2.0):
        return x * k

    def change():
        function.__defaults__ = (3.0,)

    return function, change


def array():
    held = np.ones(2, np.float32)

    def change():
        held[0] = 5

    return (lambda x: x * weft.tensor(held)), change


def a_set():
    names = {"a"}
    return (lambda x: x * len(names)), lambda: names.add("b")


def a_method():
    class Holder:
        def __init__(self):
            self.rate = 2.0

        def scale(self, x):
            return x * getattr(self, "ra" + "te")

    holder = Holder()
    return holder.scale, lambda: setattr(holder, "rate", 3.0)


@pytest.mark.parametrize(
    "make", [closed_over, partial, an_object, slots, defaults, array, a_set, a_method], ids=lambda f: f.__name__
)
def test_all_that_python_reads_is_seen(make):
    function, change = make()
    compiled = weft.compile(function)
    x = row(1, 2)
    for _ in range(3):
        assert compiled(x).tolist() == function(x).tolist()
    assert captures(compiled) == 1
    before = function(x).tolist()
    change()
    assert function(x).tolist() != before
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()
    assert captures(compiled) == 2


def test_attributes_of_arguments():
    def make():
        box = SimpleNamespace(tensor=row(1), factor=1.0)

        def program(f):
            seen = [f(box).tolist(), f(box).tolist()]
            box.factor = 4.0
            seen += [f(box).tolist(), f(box).tolist()]
            box.tensor = row(9)
            return [*seen, f(box).tolist()]

        return (lambda box: box.tensor * box.factor), program

    agree(make, runs=3)


def test_equal_numbers_are_the_same_state():
    options = SimpleNamespace(rate=0.5)
    compiled = weft.compile(lambda x: x * options.rate)
    for _ in range(4):
        options.rate = float("0.5")
        compiled(row(1))
    assert captures(compiled) == 1
    options.rate = 1
    assert compiled(row(1)).item() == 1
    options.rate = True
    compiled(row(1))
    assert captures(compiled) == 3


def test_state_that_changes_in_every_call_is_told_once():
    options = SimpleNamespace(rate=0.0)
    compiled = weft.compile(lambda x: x * options.rate)

    def call(at):
        options.rate = float(at)
        return compiled(row(2)).item()

    with pytest.warns(UserWarning, match=r"is captured anew again and again, since `options.rate` changed") as caught:
        assert [call(at) for at in range(12)] == [2 * at for at in range(12)]
    assert len(caught) == 1


def test_threads_that_replay_at_once_draw_for_themselves():
    compiled = weft.compile(lambda x: x + weft.rand(2))
    compiled(weft.zeros(2))
    weft.manual_seed(0)
    expected = sorted(weft.rand(2).tolist() for _ in range(THREADS))
    weft.manual_seed(0)
    with ThreadPoolExecutor(THREADS) as pool:
        found = sorted(pool.map(lambda _: compiled(weft.zeros(2)).tolist(), range(THREADS)))
    assert found == expected
