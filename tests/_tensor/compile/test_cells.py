"""Settings that change between a capture and its replay: the replay follows, or the function is captured again."""

from __future__ import annotations

import gc
import re
from enum import Enum
from functools import cache
from importlib import import_module

import pytest

import weft
from tests.module_state import CELLS, texts
from weft import nn
from weft._base.cell import Cell, DerivedCell, LocalCell, Registry, settings
from weft._base.dtype import DType
from weft.autograd import forward_ad, graph
from weft.distributions import Normal, kl_divergence, register_kl
from weft.library import _scoped_library
from weft.nn.utils import parametrize
from weft.overrides import TorchFunctionMode

MAKES_CELL = re.compile(rf"\b({'|'.join(CELLS)})(\[.*\])?\(")
CALLS = 3  # the first may be thrown away, the second is captured, the third replayed


@cache
def cells() -> list[Cell]:
    """All cells of the package that can be set. Modules that call a class of cells are imported, to have them."""
    for name, text in texts():
        if MAKES_CELL.search(text):
            import_module(name)
    found = {cell.name: cell for cell in gc.get_objects() if type(cell) in (Cell, LocalCell)}
    return [found[name] for name in sorted(found)]


def other(value):
    """Another value of the same kind."""
    if isinstance(value, DType):
        return weft.float64
    if isinstance(value, Enum):
        return next(one for one in type(value) if one is not value)
    if isinstance(value, tuple):
        return (*value, None)
    if isinstance(value, bool | int):
        return type(value)(1 - value)
    return frozenset() if isinstance(value, frozenset) else f"not {value}" if isinstance(value, str) else object()


def replayed(function, *args):
    """The function after it was captured, and replayed."""
    compiled = weft.compile(function)
    for _ in range(CALLS):
        compiled(*args)
    assert compiled._runs < CALLS
    return compiled


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_a_replay_follows_each_cell(cell):
    first, x = cell.get(), weft.ones(2)

    def function(x):
        return x * (2.0 if cell.get() == first else 3.0)

    compiled = replayed(function, x)
    with cell.within(other(first)):
        assert compiled(x).tolist() == function(x).tolist() == [3.0, 3.0]
    runs = compiled._runs
    assert compiled(x).tolist() == [2.0, 2.0]
    assert compiled._runs == runs  # the first replay is still there


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_a_function_that_leaves_a_cell_changed_is_not_captured(cell):
    def function(x):
        cell.set(other(first))
        return x * 2.0

    first = cell.get()
    compiled = weft.compile(function)
    with cell.within(first):
        with pytest.warns(UserWarning, match="a default for what follows"):
            compiled(weft.ones(1))
        cell.set(first)
        compiled(weft.ones(1))
        assert cell.get() != first


@pytest.fixture
def apart(monkeypatch):
    """Cells that are made in the test are compared in it only."""
    monkeypatch.setattr("weft._base.cell._set_once", [])


@pytest.mark.usefixtures("apart")
def test_a_table_has_a_new_value_after_each_change_and_the_first_one_when_it_is_as_at_first():
    table = Registry("a table")
    table["a"] = 1
    table.settle()
    before = settings()
    table["b"] = 2
    first = settings()
    table["b"] = 3
    assert before != first != settings() != before
    for change in (lambda: table.pop("b"), lambda: table.update(b=1), table.clear, lambda: table.update(a=1)):
        change()
    assert settings() == before


@pytest.mark.usefixtures("apart")
def test_a_derived_cell_follows_what_it_reads():
    held = [1]
    cell = DerivedCell("a number", lambda: held[0])
    assert (cell, 2) not in settings()
    held[0] = 2
    assert (cell, 2) in settings()
    with pytest.raises(TypeError, match="a number cannot be set here"):
        cell.set(3)
    held[0] = 1


# --- what was replayed as it had been ---------------------------------------------------------------------------


def test_parametrized_tensors_of_another_block():
    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

    layer = nn.Linear(2, 2, bias=False)
    parametrize.register_parametrization(layer, "weight", Double())
    compiled, x = weft.compile(lambda x: layer(x)), weft.ones(1, 2)
    with weft.no_grad():
        for _ in range(CALLS):
            with parametrize.cached():
                _ = layer.weight
                assert compiled(x).tolist() == layer(x).tolist()
            layer.parametrizations.weight.original.add_(1.0)


def test_an_operator_that_is_defined_anew():
    with _scoped_library("cells", "FRAGMENT") as library:
        library.define("shifted(Tensor x) -> Tensor")
        library.impl("shifted", lambda x: x + 1, "CompositeExplicitAutograd")
        compiled = replayed(lambda x: weft.ops.cells.shifted(x), weft.zeros(1))
        library.impl("shifted", lambda x: x + 5, "CPU")
        assert compiled(weft.zeros(1)).tolist() == [5.0]


def test_a_mode_that_is_on_later():
    class Tenfold(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return 10 * result if func is weft.add else result

    compiled = replayed(lambda x: weft.add(x, 1.0), weft.zeros(1))
    with Tenfold():
        assert compiled(weft.zeros(1)).tolist() == [10.0]
    assert compiled(weft.zeros(1)).tolist() == [1.0]


def test_tensors_that_have_tangents_later():
    def function(x):
        tangent = forward_ad.unpack_dual(x).tangent
        return x * 3 if tangent is None else tangent * 7

    compiled, x = replayed(function, weft.ones(1)), weft.ones(1)
    for number in range(CALLS):
        with forward_ad.dual_level():
            assert compiled(forward_ad.make_dual(x, weft.full((1,), float(number)))).tolist() == [7.0 * number]
    assert compiled(x).tolist() == [3.0]


def test_hooks_on_saved_tensors_that_are_refused_later():
    def function(x):
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return x * 2

    compiled = replayed(function, weft.zeros(1))
    with graph.disable_saved_tensors_hooks("none here"), pytest.raises(RuntimeError, match="none here"):
        compiled(weft.zeros(1))


def test_a_divergence_that_is_registered_later():
    class Own(Normal):
        pass

    p, q = Own(weft.zeros(1), weft.ones(1)), Normal(weft.ones(1), weft.ones(1))
    compiled = replayed(lambda x: kl_divergence(p, q) + x, weft.zeros(1))
    register_kl(Own, Normal)(lambda p, q: weft.full((1,), 7.0))
    assert compiled(weft.zeros(1)).tolist() == [7.0]


def test_a_precision_that_is_set_later():
    compiled = replayed(lambda x: x + (weft.get_float32_matmul_precision() == "high"), weft.zeros(1))
    before = weft.get_float32_matmul_precision()
    weft.set_float32_matmul_precision("high")
    try:
        assert compiled(weft.zeros(1)).tolist() == [1.0]
    finally:
        weft.set_float32_matmul_precision(before)


def test_determinism_that_is_requested_later():
    compiled = replayed(lambda x, i: x.clone().put_(i, x), weft.zeros(2), weft.tensor([0, 1]))
    weft.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            compiled(weft.zeros(2), weft.tensor([0, 1]))
    finally:
        weft.use_deterministic_algorithms(False)
