"""Graphs and nodes: what editing keeps consistent, and what it refuses."""

from __future__ import annotations

import copy
import operator

import pytest

import weft
from weft import fx, nn
from weft.fx.immutable_collections import immutable_dict, immutable_list


@pytest.fixture
def graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(weft.relu, (graph.call_function(operator.add, (x, 1)),)))
    return graph


def names(graph):
    return [node.name for node in graph.nodes]


def test_users_follow_arguments(graph):
    x, add, relu, output = graph.nodes
    assert (list(x.users), list(add.users), relu.all_input_nodes) == ([add], [relu], [add])
    relu.args = (x,)
    assert (list(x.users), list(add.users)) == ([add, relu], [])
    add.kwargs = {"other": [relu, {"key": (relu, slice(relu))}]}
    assert (list(x.users), list(relu.users)) == ([relu, add], [output, add])
    add.replace_input_with(relu, x)
    assert add.kwargs == {"other": [x, {"key": (x, slice(x))}]}
    assert x.replace_all_uses_with(relu, delete_user_cb=lambda user: user is add) == [add]
    assert (list(x.users), list(relu.users)) == ([relu], [output, add])


def test_meta_moves_to_an_empty_one(graph):
    x, add, relu, _ = graph.nodes
    add.meta["key"] = 1
    add.replace_all_uses_with(x, propagate_meta=True)
    assert x.meta == {"key": 1}
    with pytest.raises(AssertionError, match=r"'x' must have an empty meta"):
        relu.replace_all_uses_with(x, propagate_meta=True)


def test_arguments_do_not_change_in_place(graph):
    x, add, _, _ = graph.nodes
    add.args = ([x], {"key": x})
    sequence, mapping = add.args
    assert (type(sequence), type(mapping)) == (immutable_list, immutable_dict)
    for change in (
        lambda: sequence.append(x),
        lambda: sequence.__setitem__(0, 1),
        lambda: mapping.update(a=1),
        lambda: mapping.pop("key"),
        lambda: add.kwargs.update(a=1),
    ):
        with pytest.raises(TypeError, match=r"^'immutable_\w+' object does not support mutation: .* node\.args ="):
            change()
    assert copy.deepcopy(immutable_list([1, [2]])) == [1, [2]]
    assert weft.utils._pytree.tree_map(lambda n: n + 1, immutable_dict(a=immutable_list([1]))) == {"a": [2]}


def test_nodes_are_ordered(graph):
    x, add, relu, output = graph.nodes
    assert x < add < relu <= output
    assert output > relu >= relu
    relu.append(add)
    assert names(graph) == ["x", "relu", "add", "output"]
    with pytest.raises(RuntimeError, match=r"Argument 'add' of Node 'relu' was used before it has been defined"):
        graph.lint()
    x.append(add)
    graph.lint()
    assert names(graph) == ["x", "add", "relu", "output"]
    assert (add.prev, add.next) == (x, relu)


def test_insertion_points_nest(graph):
    _, add, relu, _ = graph.nodes
    with graph.inserting_before(relu):
        first = graph.call_method("abs", (add,))
        with graph.inserting_after(add):
            graph.call_method("sin", (add,))
        graph.call_method("cos", (first,))
    graph.inserting_before(add)
    graph.get_attr("bias")
    assert names(graph) == ["x", "bias", "add", "sin", "abs_1", "cos", "relu", "output"]
    other = fx.Graph()
    with pytest.raises(AssertionError, match=r"^Node to insert before is not in graph\.$"):
        other.inserting_before(add)
    with pytest.raises(AssertionError, match=r"^Attempting to move a Node into a different Graph$"):
        other.placeholder("y").append(add)


def test_nodes_are_erased_while_iterating(graph):
    for node in graph.nodes:
        if node.op == "call_function":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    assert names(graph) == ["x", "output"]
    assert len(graph.nodes) == 2
    graph.lint()
    with pytest.raises(TypeError, match=r"have no indices, since it may change: take list\(graph\.nodes\)"):
        graph.nodes[0]
    with pytest.raises(RuntimeError, match=r"^Tried to erase Node x but it still had 1 users .*: \{output: None\}!$"):
        graph.erase_node(next(iter(graph.nodes)))
    with pytest.raises(RuntimeError, match=r"^Attempting to remove x from wrong graph!$"):
        fx.Graph().erase_node(next(iter(graph.nodes)))


def test_names_are_given_once(graph):
    _, add, relu, _ = graph.nodes
    relu.replace_all_uses_with(add)
    graph.erase_node(relu)
    assert graph.call_function(weft.relu, (add,)).name == "relu_1"
    assert graph.call_function(weft.relu, (add,), name="relu").name == "relu_2"
    add._rename("sum")
    assert add.name == "sum_1"


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (
            lambda g: g.create_node("call", "f"),
            AssertionError,
            r"^op 'call' is not in _legal_ops: it must be one of call_",
        ),
        (lambda g: g.call_function("f"), ValueError, r"target 'f' has type <class 'str'> but a Callable is expected$"),
        (
            lambda g: g.call_method(len),
            ValueError,
            r"has type <class 'builtin_function_or_method'> but a str is expected$",
        ),
        (
            lambda g: g.call_function(len, args=3),
            AssertionError,
            r"^Node 'len_1': expected args to be a tuple, got <class",
        ),
        (lambda g: g.call_function(len, kwargs=3), AssertionError, r"expected kwargs to be a dict, got <class 'int'>$"),
        (lambda g: g.find_nodes(op="call_function"), AssertionError, "for call_function a target is needed"),
        (lambda g: next(iter(g.nodes)).insert_arg(1, 1), AssertionError, "index must be between 0 and 0, got 1"),
        (lambda g: fx.Graph().output_node(), AssertionError, "must have one output node, and has 0"),
        (lambda g: fx.map_arg(1, 2), AssertionError, "fn must be a callable"),
    ],
)
def test_mistakes_are_refused(graph, make, kind, text):
    before = names(graph)
    with pytest.raises(kind, match=text):
        make(graph)
    assert names(graph) == before


def test_lint_looks_at_the_module():
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1)))
    module.graph.lint()
    del module._modules["0"]
    with pytest.raises(
        RuntimeError, match=r"^Node _0 target 0 references a nonexistent attribute: .* or erase the node$"
    ):
        module.graph.lint()
    module.register_buffer("0", weft.ones(1))
    with pytest.raises(RuntimeError, match=r"must be a module to be called, and is of <class .*Tensor'>$"):
        module.graph.lint()
    with pytest.raises(AttributeError, match=r"no submodule 'other'; call add_submodule first$"):
        module.graph.call_module("other")
    with pytest.warns(UserWarning, match=r"no attribute 'other': add it before it runs"):
        module.graph.get_attr("other")
    graph = fx.Graph()
    first, second = graph.placeholder("a"), graph.placeholder("b")
    second.name = first.name
    with pytest.raises(RuntimeError, match=r"^Node redefined name a!$"):
        graph.lint()


def test_writes_survive_dead_code():
    def program(x, y):
        x.add_(1)
        weft.nn.functional.relu(x, inplace=True)
        weft.add(x, 1, out=y)
        x + 1
        weft._assert(x.sum() > 0, "negative")
        return x

    module = fx.symbolic_trace(program)
    assert module.graph.eliminate_dead_code()
    kept = ["x", "y", "add_", "relu", "add", "sum_1", "gt", "_assert", "output"]
    assert names(module.graph) == kept
    assert module.graph.eliminate_dead_code(is_impure_node=lambda node: False)
    assert names(module.graph) == ["x", "y", "output"]


def test_writes_that_nobody_sees_are_dead_code():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.flatten = nn.BatchNorm1d(3), nn.Flatten()

        def forward(self, x):
            relu = weft.nn.functional.relu
            relu(self.norm(x), inplace=True).add_(1)
            y = self.norm(x)
            relu(y, inplace=True)
            relu(self.flatten(x), inplace=True)  # it may be the input
            return y

    module = fx.symbolic_trace(Model())
    module.graph.eliminate_dead_code()
    assert names(module.graph) == ["x", "norm_1", "relu_1", "flatten", "relu_2", "output"]


def test_names_are_identifiers_that_code_does_not_need():
    graph = fx.Graph()
    for name, expected in [
        ("a.b-c", "a_b_c"), ("1", "_1"), ("", "_unnamed"), ("sum", "sum_1"), ("class", "class_1"), ("torch", "torch_1"),
        ("inf", "inf_1"), ("x", "x"), ("x_1", "x_1"), ("x_1", "x_2"), ("x_7", "x_7"), ("x", "x_8"), ("x_01", "x_01"),
        ("BatchNorm", "batch_norm"), ("ABCDef", "abcdef"), ("__add__", "add"), ("__x", "__x"), ("y_0", "y_0"),
    ]:  # fmt: skip
        assert graph.create_node("get_attr", name).name == expected


def test_a_table_is_printed(graph, capsys):
    graph.print_tabular()
    head, line, first, second, *_ = capsys.readouterr().out.splitlines()
    assert head == "opcode         name    target        args     kwargs"
    assert set(line) == {"-", " "}
    assert first == "placeholder    x       x             ()       {}"
    assert second == "call_function  add     operator.add  (x, 1)   {}"


def test_copies_are_apart(graph):
    copied = copy.deepcopy(graph)
    assert str(copied) == str(graph)
    copied.erase_node(copied.output_node())
    assert names(graph) == ["x", "add", "relu", "output"]
    other = fx.Graph()
    result, output = other.graph_copy(graph, {}, return_output_node=True)
    assert (result.name, output.op, names(other)) == ("relu", "output", ["x", "add", "relu"])


def test_arguments_by_signature():
    def program(x):
        return weft.softmax(x, 1)

    call = next(iter(fx.symbolic_trace(program).graph.find_nodes(op="call_function", target=weft.softmax)))
    assert call.normalized_arguments(nn.Module()).args[1] == 1
    assert call.normalized_arguments(nn.Module(), normalize_to_only_use_kwargs=True).kwargs["dim"] == 1
    assert call.prev.normalized_arguments(nn.Module()) is None
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1)))
    layer = module.graph.find_nodes(op="call_module")[0]
    assert list(layer.normalized_arguments(module, normalize_to_only_use_kwargs=True).kwargs) == ["input"]
