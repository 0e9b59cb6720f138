"""What can be looked at in a program: its operators, its signature, its module."""

from __future__ import annotations

import pytest

import weft as torch
from weft import export as package
from weft import nn
from weft.errors import ProgramError
from weft.export import Dim, export, load, save


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        first, second = torch.var_mean(self.layer(x).view(-1, 2 * x.shape[0]), 1)
        return first + second


LINES = """\
graph of Halves:
    %x = placeholder(x)
    %p_layer_weight = placeholder(layer.weight)
    %p_layer_bias = placeholder(layer.bias)
    %b_calls = placeholder(calls)
    %linear = linear(%x, %p_layer_weight, %p_layer_bias)
    %view = view(%linear, [-1, 2*b])
"""


def halves():
    return export(Halves(), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("b")},))


def test_a_graph_has_a_line_for_each_operator(tmp_path):
    program = halves()
    assert str(program.graph).startswith(LINES)
    save(program, tmp_path / "halves.pt2")
    assert str(load(tmp_path / "halves.pt2").graph) == str(program.graph)


def test_nodes():
    graph = halves().graph
    assert [node.op for node in graph][:4] == ["placeholder"] * 4
    assert graph.nodes[-1].op == "output"
    [linear] = graph.find_nodes(op="call_function", target="linear")
    assert [node.target for node in linear.args] == ["x", "layer.weight", "layer.bias"]
    assert len(graph) == len(graph.nodes)


def test_the_code_of_its_module(capsys):
    module = halves().graph_module
    code = module.print_readable()
    assert capsys.readouterr().out.strip() == code.strip()
    assert code.startswith(
        "def forward(self, x, p_layer_weight, p_layer_bias, b_calls):\n    linear = linear(x, p_layer"
    )
    assert module.graph.nodes[0].name == "x"
    assert module(torch.ones(2, 4)).shape == (1,)
    assert sorted(module.state_dict()) == ["calls", "layer.bias", "layer.weight"]


def test_a_table(capsys):
    halves().graph.print_tabular()
    assert capsys.readouterr().out.splitlines()[1].split() == ["placeholder", "x", "x", "()"]


def test_names_of_inputs():
    signature = halves().graph_signature
    assert signature.inputs_to_parameters == {"p_layer_weight": "layer.weight", "p_layer_bias": "layer.bias"}
    assert signature.inputs_to_buffers == {"b_calls": "calls"}
    assert signature.mutated == ["calls"]


def test_decompositions():
    program = halves()
    assert program.run_decompositions() is program
    with pytest.raises(ProgramError, match="a decomposition table cannot be applied, as programs are made of"):
        program.run_decompositions({"aten": None})


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'unflatten': a program is one function, and keeps no calls"):
        _ = package.unflatten
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = package.nothing
