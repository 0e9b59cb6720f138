"""Pending graphs as StableHLO, and barriers in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import weft as torch
from weft.xla.core import xla_model as xm


def product():
    a = torch.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3)).to("xla")
    b = torch.from_numpy(np.ones((3, 4), np.float32)).to("xla")
    return a @ b


def operators(text):
    return re.findall(r"= stablehlo\.(\w+)", text)


def test_the_graph_of_some_tensors():
    x = product()
    y = (x * 2.5).tanh()
    other = x + 1
    text = xm.get_stablehlo([y])
    assert operators(text) == ["dot_general", "constant", "broadcast_in_dim", "multiply", "tanh"]
    assert "@main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>) -> (tensor<2x4xf32>" in text
    assert "2.500000e+00" in text
    assert "loc(" not in text
    assert all(t._read().is_pending for t in (x, other, y))  # nothing was computed


def test_the_graph_of_everything_that_is_pending():
    x = product()
    dead = x - 1
    y, z = x + 1, x * x
    del dead
    text = xm.get_stablehlo()
    assert text == xm.get_stablehlo([x, y, z])
    assert sorted(set(operators(text)) - {"constant", "broadcast_in_dim"}) == ["add", "dot_general", "multiply"]
    assert text.count("tensor<2x4xf32> {jax.result_info") == 3
    xm.mark_step()
    assert operators(xm.get_stablehlo()) == []
    assert xm.get_stablehlo([y]).count("%arg0") == 2  # it is computed: what goes in comes out


def test_the_graph_of_a_training_step():
    model = torch.nn.Linear(3, 2).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    xm.mark_step()
    model(torch.ones(4, 3, device="xla")).square().sum().backward()
    optimizer.step()
    text = xm.get_stablehlo()
    assert "tensor<2x3xf32>" in text  # the new weight
    assert operators(text).count("dot_general") == 2  # forward, and the weight's gradient


def test_the_text_is_what_xla_compiles():
    text = xm.get_stablehlo([product()])
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32)
    lowered = jax.jit(lambda a, b: [a @ b]).lower(a, b).as_text()
    assert operators(text) == operators(lowered)


def test_bytecode():
    content = xm.get_stablehlo_bytecode([product()])
    assert content.startswith(b"ML\xefR")
    assert b"dot_general" in content
    assert xm.get_stablehlo_bytecode()[:4] == b"ML\xefR"


def test_only_lists_of_tensors():
    with pytest.raises(TypeError, match=r"^get_stablehlo: a list of tensors is needed, got Tensor$"):
        xm.get_stablehlo(product())
    with pytest.raises(TypeError, match=r"^get_stablehlo: a list of tensors is needed, got list$"):
        xm.get_stablehlo([1])


_LINES = """import weft as torch
from weft.xla.core import xla_model as xm
x = torch.ones(2, device="xla", requires_grad=True)
y = x.sin()
z = y * x
z.sum().backward()
xm.optimization_barrier_([z])
print(xm.get_stablehlo([x.grad, z]))
"""


def test_the_lines_of_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_LINES)
    env = {**os.environ, "XLA_HLO_DEBUG": "1"}
    found = subprocess.run([sys.executable, program], check=True, env=env, capture_output=True, text=True).stdout
    named = dict(re.findall(r"^(#loc\d+) = loc\((.*)\)$", found, re.MULTILINE))

    def lines(name):
        """The lines of the program in a location and in those of which it is made."""
        text = named[name]
        own = {int(line) for line in re.findall(r'program\.py":(\d+)', text)}
        return own.union(*[lines(other) for other in re.findall(r"#loc\d+", text)])

    at = {
        operator: lines(loc)
        for operator, loc in re.findall(r"stablehlo\.(\w+) .*loc\((#loc\d+)\)$", found, re.MULTILINE)
    }
    assert at["sine"] == {4, 8}  # recorded in 4, exported in 8
    assert at["cosine"] == {6, 8}
    assert at["optimization_barrier"] == {7, 8}


def test_a_barrier_keeps_elements_and_gradients():
    x = torch.ones(3, device="xla", requires_grad=True)
    y = x * 2
    before = id(x), id(y)
    xm.optimization_barrier_([x, y])
    assert (id(x), id(y)) == before
    assert x.is_leaf
    assert y.tolist() == [2, 2, 2]
    (y * x.detach()).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    xm.optimization_barrier_([])


def test_a_barrier_stands_between_equal_computations():
    x = product()
    xm.mark_step()
    first = x.sin()
    y = x.clone()
    xm.optimization_barrier_([y])
    text = xm.get_stablehlo([first, y.sin()])
    assert operators(text).count("sine") == 2
    assert operators(text).count("optimization_barrier") == 1
    assert operators(xm.get_stablehlo([x.sin(), x.sin()])).count("sine") == 1


@pytest.mark.compiled
def test_a_barrier_in_a_compiled_program():
    x = torch.arange(3.0, device="xla")
    y = x * 2
    xm.optimization_barrier_([y, x])
    assert (y + x).tolist() == [0, 3, 6]


def test_a_barrier_writes_through_views():
    x = torch.zeros(4, device="xla")
    view = x[1:3]
    view += 1
    xm.optimization_barrier_([view])
    assert x.tolist() == [0, 1, 1, 0]
