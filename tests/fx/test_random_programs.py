"""Random programs: however a graph is copied, run or cut, it computes what the program did."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import fx, nn
from weft.fx.passes.split_module import split_module

UNARY: list[Callable[[Any], Any]] = [
    weft.relu, weft.tanh, operator.neg, abs, lambda x: x.sum(), lambda x: x[..., None].squeeze(-1),
    lambda x: x * 0.5 - 1,
    lambda x: nn.functional.softplus(x), lambda x: x.clamp(min=-1.0), lambda x: weft.stack([x, x], dim=0)[1],
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.mul, operator.sub, weft.maximum, lambda x, y: weft.where(x > y, x, y),
    lambda x, y: 2 - x + y,
]  # fmt: skip
STEP = st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9))


def program(steps):
    def run(x, y):
        values = [x, y]
        for which, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(UNARY[which](a) if which < len(UNARY) else BINARY[which - len(UNARY)](a, b))
        return values[-1], {"sum": values[-1] + values[len(values) // 2]}

    return run


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEP, max_size=8), cuts=st.integers(1, 3))
def test_every_form_of_a_graph_computes_the_same(steps, cuts):
    original = program(steps)
    module = fx.symbolic_trace(original)
    numbers = {node: at * cuts // len(module.graph.nodes) for at, node in enumerate(module.graph.nodes)}
    forms = {
        "traced": module,
        "again": fx.symbolic_trace(module),
        "interpreted": fx.Interpreter(module).run,
        "transformed": fx.Transformer(module).transform(),
        "copied": copy.deepcopy(module),
        "pickled": pickle.loads(pickle.dumps(module)),
        "split": split_module(module, module, lambda node: numbers[node]),
        "split by itself": split_module(module, None, lambda node: numbers[node]),
    }
    reduced = forms["reduced"] = copy.deepcopy(module)
    reduced.graph.eliminate_dead_code()
    reduced.recompile()
    x, y = weft.linspace(-2, 2, 6), weft.linspace(1, -1, 6)
    expected, total = original(x, y)
    for name, form in forms.items():
        result, others = form(x, y)
        assert result.tolist() == pytest.approx(expected.tolist()), name
        assert others["sum"].tolist() == pytest.approx(total["sum"].tolist()), name
    assert all(node.users or node.op in ("placeholder", "output") for node in reduced.graph.nodes)
    reduced.graph.lint()
