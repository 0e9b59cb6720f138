"""Functions that do more than compute with tensors: nothing of that is lost."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import time
import warnings
from contextvars import ContextVar, copy_context
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests._tensor.compile.programs import agree, captures, row
from weft.errors import CompileError

COUNT = 0
POSITIONS = itertools.count()


def a_global():
    global COUNT
    COUNT = 0

    def function(x):
        global COUNT
        COUNT += 1
        return x * COUNT

    return function, lambda f: [(f(row(1)).item(), COUNT) for _ in range(4)]


def a_cell():
    n = 0

    def function(x):
        nonlocal n
        n += 1
        return x * n

    return function, lambda f: [(f(row(1)).item(), n) for _ in range(4)]


def a_list():
    seen = []

    def function(x):
        seen.append(x * 2)
        return x + 1

    return function, lambda f: [(f(row(i)).item(), [s.item() for s in seen]) for i in range(4)]


def an_attribute():
    box = SimpleNamespace(hidden=row(0))

    def function(x):
        box.hidden = box.hidden * 0.5 + x
        return box.hidden

    return function, lambda f: [(f(row(i)).item(), box.hidden.item()) for i in range(4)]


def a_default():
    def function(x, seen=[]):  # noqa: B006  on purpose
        seen.append(1)
        return x * len(seen)

    return function, lambda f: [f(row(1)).item() for _ in range(4)]


def a_scheduler():
    weight = row(1.0).requires_grad_()
    optimizer = weft.optim.SGD([weight], lr=1.0)
    scheduler = weft.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def function(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        scheduler.step()

    def program(f):
        return [(f(row(1)), weight.item(), optimizer.param_groups[0]["lr"], scheduler.last_epoch) for _ in range(4)]

    return function, program


STATE = {
    a_global: "`COUNT` at .*test_effects",
    a_cell: "`n` at .*test_effects",
    a_list: "`seen`",
    an_attribute: "`box.hidden` at .*test_effects",
    a_default: r"`function.__defaults__\[0\]`",
    a_scheduler: "`scheduler.last_epoch`",
}


@pytest.mark.parametrize("make", STATE, ids=lambda f: f.__name__)
def test_a_function_that_changes_python_state_runs_as_it_is(make):
    with pytest.warns(UserWarning, match=f"^weft.compile: function changes {STATE[make]}.*; it runs uncap") as caught:
        agree(make)
    assert len(caught) == 1


def test_fullgraph_refuses_to_change_python_state():
    seen = []
    compiled = weft.compile(lambda x: seen.append(1), fullgraph=True)
    compiled(row(1))  # which might have made what later calls find
    with pytest.raises(CompileError, match=r"the function changes `seen` at .*, so it cannot be captured whole"):
        compiled(row(1))


def test_what_is_made_once_is_found_by_later_calls():
    box = SimpleNamespace(weight=None)

    def function(x):
        if box.weight is None:
            box.weight = row(3)
        return x * box.weight

    compiled = weft.compile(function, fullgraph=True)
    assert [compiled(row(i)).item() for i in range(4)] == [0, 3, 6, 9]
    assert captures(compiled) == 2


def test_containers_among_the_arguments():
    def make():
        def function(listed, table):
            listed.append(listed[0] * 2)
            table["y"] = listed[0] + 1

        def program(f):
            seen = []
            for i in range(4):
                listed, table = [row(i)], {}
                f(listed, table)
                seen.append(([x.item() for x in listed], table["y"].item()))
            return seen

        return function, program

    with pytest.warns(UserWarning, match=r"function changes one of its arguments; it runs uncaptured"):
        agree(make)


def test_output_is_written_in_every_call(capsys):
    def function(x):
        print("seen")
        return x + 1

    compiled = weft.compile(function)
    with pytest.warns(UserWarning, match=r"function calls `print` at .*test_effects\.py:\d+, which a replay"):
        assert [compiled(row(i)).item() for i in range(3)] == [1, 2, 3]
    assert capsys.readouterr().out == "seen\n" * 3


RANDOM = {"random": lambda: random.random(), "numpy": lambda: float(np.random.rand())}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_random_numbers_of_others_are_drawn_in_every_call(draw):
    compiled = weft.compile(lambda x: x * draw())
    with pytest.warns(UserWarning, match=r"draws from Python's or NumPy's random numbers"):
        assert len({compiled(row(1)).item() for _ in range(4)}) == 4


UNREPEATABLE = {
    "a clock": (lambda x: x * 0 + time.perf_counter_ns(), r"calls `perf_counter_ns` at"),
    "a seed": (lambda x: (weft.manual_seed(0), x + weft.rand(1))[1], r"needs to seed a generator at"),
    "an own generator": (lambda x: x + weft.rand(1, generator=weft.Generator()), r"needs a generator of its own at"),
    "an iterator": (lambda x: x * next(POSITIONS), r"reads the iterator `POSITIONS`"),
    "a generator": (lambda x: (x * i for i in range(2)), r"returns a generator that it has made"),
    "an object": (lambda x: SimpleNamespace(x=x), r"returns a SimpleNamespace that it has made"),
    "the mode": (lambda x: weft.set_grad_enabled(False) and None, r"changes the gradient mode or a default"),
    "a flag": (lambda x: x.requires_grad_(False), r"changes whether a tensor requires a gradient at"),
}


@pytest.mark.parametrize(("function", "text"), UNREPEATABLE.values(), ids=UNREPEATABLE)
def test_what_a_replay_cannot_do_is_named(function, text):
    compiled = weft.compile(function)
    with weft.enable_grad():
        with pytest.warns(UserWarning, match=f"^weft.compile: <lambda> {text}.*; it runs uncaptured$"):
            compiled(row(1).requires_grad_())
        compiled(weft.ones(1, requires_grad=weft.is_grad_enabled()))
    assert captures(compiled) == 2


def test_what_the_garbage_collector_calls_is_not_the_functions_doing():
    def at_collection(phase, info):
        time.perf_counter()

    compiled = weft.compile(lambda x: x + gc.collect() * 0)
    gc.callbacks.append(at_collection)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(row(1))
    finally:
        gc.callbacks.remove(at_collection)


def test_an_argument_that_is_written_and_then_requires_a_gradient():
    @weft.compile
    def function(x):
        x.add_(1)
        x.requires_grad_()

    arguments = [weft.zeros(2) for _ in range(3)]
    with pytest.warns(UserWarning, match="changes whether a tensor requires a gradient"):
        assert not any(map(function, arguments))
    assert all(x.requires_grad for x in arguments)
    assert [x.tolist() for x in arguments] == [[1, 1]] * 3


def test_the_gradient_mode_stays_as_the_function_leaves_it():
    compiled = weft.compile(lambda: weft.set_grad_enabled(False) and None)
    with weft.enable_grad():
        with pytest.warns(UserWarning, match="gradient mode"):
            compiled()
        assert not weft.is_grad_enabled()


def test_a_running_profiler_is_left_alone():
    events = []
    compiled = weft.compile(lambda x: x + 1)

    def profile(*event):
        events.append(event)

    sys.setprofile(profile)
    try:
        with pytest.warns(UserWarning, match=r"needs the place of the profiler that is running"):
            assert compiled(row(1)).item() == 2
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


def test_an_error_leaves_what_the_function_had_done_and_the_next_call_works():
    def make():
        state, box = row(0), SimpleNamespace(bad=False)

        def function(x):
            state.add_(1)
            if box.bad:
                raise KeyError("bad")
            return x + state

        def program(f):
            seen = []
            for i in range(6):
                box.bad = i % 3 == 2
                try:
                    seen.append(f(row(i)).item())
                except KeyError:
                    seen.append("error")
                seen.append(state.item())
            return seen

        return function, program

    agree(make, runs=3)


def test_tensors_that_are_left_where_nothing_is_known_of():
    hidden = ContextVar("hidden")

    def function(x):
        hidden.set(x * 2)

    def program():
        for i in range(3):
            compiled(row(i))
            assert hidden.get().item() == 2 * i

    compiled = weft.compile(function)
    with pytest.warns(UserWarning, match=r"function leaves tensors behind where .*; it runs uncaptured"):
        copy_context().run(program)
