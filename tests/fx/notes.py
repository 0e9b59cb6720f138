"""Programs that note something of values and nodes, or draw it, written for PyTorch and for Weft.

Each returns texts and numbers, which are the same for both.
"""

from __future__ import annotations

import numbers
import operator
import re
from collections.abc import Callable
from typing import Any, Optional, Union

from tests.fx.edits import fx_module

NOTES: dict[str, Callable[[Any], list[Any]]] = {}


def example(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    NOTES[function.__name__] = function
    return function


@example
def values_are_annotated(torch):
    annotate = fx_module(torch, "annotate").annotate

    def program(x, y):
        return annotate(y + x, torch.Tensor) * annotate(2, int)

    def twice(x: int):
        return annotate(x, float)

    errors = []
    try:
        torch.fx.symbolic_trace(twice)
    except RuntimeError:
        errors.append("refused")
    return [torch.fx.symbolic_trace(program).code, errors]


@example
def blocks_are_annotated(torch):
    notes = fx_module(torch, "traceback")

    @notes.annotate_fn({"stage": 1})
    def inner(x):
        return x + 1

    def program(x):
        with notes.annotate({"a": 1, "b": 2}):
            y = inner(x)
            with notes.annotate({"b": 3}):
                y = y * 2
            y = y - 1
        return inner(y) / 2

    plain = torch.fx.symbolic_trace(program)
    with notes.preserve_node_meta():
        noted = torch.fx.symbolic_trace(program)
        copied = torch.fx.Transformer(noted).transform()
    return [
        [node.meta.get("custom") for node in plain.graph.nodes],
        [node.meta.get("custom") for node in noted.graph.nodes],
        [node.meta.get("custom") for node in copied.graph.nodes if node.op == "call_function"],
        notes.get_current_meta().get("custom"),
        inner.__name__,
    ]


@example
def copies_know_where_they_come_from(torch):
    notes = fx_module(torch, "traceback")
    module = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    for node in module.graph.nodes:
        node.meta["number"] = 1
    copied = torch.fx.Transformer(torch.fx.Transformer(module).transform()).transform()
    sources = [node.meta["from_node"][0] for node in copied.graph.nodes if node.op == "call_function"]
    known = notes.get_graph_provenance_json(copied.graph)
    relu = next(iter(module.graph.find_nodes(op="call_function", target=torch.relu)))
    source = notes.NodeSource(relu, "pass", [notes.NodeSourceAction.CREATE, notes.NodeSourceAction.REPLACE])
    same = notes.NodeSource(relu, "pass", [notes.NodeSourceAction.CREATE, notes.NodeSourceAction.REPLACE])
    return [
        [[one.name, one.pass_name, [action.value for action in one.action], len(one.from_node)] for one in sources],
        [[name, [(x["name"], x["action"], len(x["from_node"])) for x in entries]] for name, entries in known.items()],
        [source == same, hash(source) == hash(same), source == sources[0], source == 1],
        str(source).replace(str(id(module.graph)), "ID"),
        sorted(source.to_dict()),
        notes.NodeSource(None).name,
    ]


@example
def nodes_are_replayed(torch):
    notes = fx_module(torch, "traceback")
    graph = torch.fx.Graph()
    first = graph.placeholder("x")
    first.meta.update(custom={"a": 1}, stack_trace="here")
    tracer = torch.fx.Tracer()
    tracer.graph = graph
    with notes.preserve_node_meta():
        with notes.set_current_replay_node(first):
            inside = notes.get_current_replay_node() is first
            node = tracer.create_node("call_function", torch.relu, (first,), {})
        notes.set_stack_trace(["there"])
        other = tracer.create_node("call_function", torch.relu, (first,), {})
        notes.set_stack_trace([])
        last = tracer.create_node("call_function", torch.relu, (first,), {})
    names = ("custom", "stack_trace", "is_functional_regenerated")
    metas = [[one.meta.get(name) for name in names] for one in (node, other, last)]
    return [inside, metas, notes.get_current_replay_node() is None, notes.get_current_meta().get("stack_trace")]


@example
def nodes_know_their_scope(torch):
    proxy = fx_module(torch, "proxy")
    seen = []

    class Tracer(torch.fx.Tracer):
        def create_node(self, *args, **kwargs):
            seen.append([self.scope.module_path, getattr(self.scope.module_type, "__name__", None)])
            return super().create_node(*args, **kwargs)

    tracer = Tracer()
    tracer.trace(torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()), torch.nn.ReLU()))
    scope = proxy.Scope("a", int)
    with proxy.ScopeContextManager(scope, proxy.Scope("b", str)) as current:
        inside = [current is scope, scope.module_path, scope.module_type.__name__]
    scopes = [[name, path, kind.__name__ if kind else None] for name, (path, kind) in tracer.node_name_to_scope.items()]
    return [seen, inside, scope.module_path, scope.module_type.__name__, scopes]


@example
def types_are_compared(torch):
    schemas = fx_module(torch, "operator_schemas")
    tensor, number = torch.Tensor, numbers.Number
    pairs = [
        (int, int), (tensor, torch.nn.Parameter), (torch.nn.Parameter, tensor), (Union[int, str], str),  # noqa: UP007
        (Optional[int], type(None)), (Optional[int], float), (list[int], int), (list[float], int),  # noqa: UP045
        (list[tensor], list[tensor]), (list[tensor], tuple[tensor, ...]), (list[int], tuple[int, int]),
        (list[int], tuple[int, float]), (list[int], str), (int, torch.dtype), (float, torch.dtype), (number, float),
        (number, str), (Any, int), (list[list[int]], int),
    ]  # fmt: skip
    hints = [[int, int], (int, bool), (int, str), [], (), int, [tensor, torch.nn.Parameter], [None, None]]
    names = [str(schemas.create_type_hint(hint)).replace("weft._tensor.tensor.", "torch.") for hint in hints]
    return [[schemas.type_matches(a, b) for a, b in pairs], names]


@example
def writes_are_refused(torch):
    check = fx_module(torch, "operator_schemas").check_for_mutable_operation

    class Strict(torch.fx.Tracer):
        check_mutable_operations = True

    programs = (
        lambda x: torch.add(x, 1),
        lambda x: torch.relu_(x),
        lambda x: torch.matmul(x, x, out=x),
        lambda x: operator.iadd(x, 1),
        lambda x: x.add_(1),
    )
    results = []
    for program in programs:
        try:
            Strict().trace(program)
        except RuntimeError as error:
            results.append(str(error).startswith("Tried to trace mutable operation"))
        else:
            results.append(None)
    x = torch.ones(1)
    return [results, check(torch.relu, (x,), {}), check(len, ([],), {})]


@example
def arguments_have_names(torch):
    schemas = fx_module(torch, "operator_schemas")
    tensor, functional = torch.Tensor, torch.nn.functional
    calls = [
        (torch.matmul, ("a", "b"), {}, (tensor, tensor)), (torch.add, ("a", "b"), {}, (tensor, tensor)),
        (torch.sum, ("a", 1), {}, (tensor, int)), (torch.cat, (["a", "b"],), {}, (list[tensor],)),
        (torch.clamp, ("a", 0), {"max": 1}, (tensor, int)), (torch.softmax, ("a", 1), {}, (tensor, int)),
        (functional.relu, ("a",), {}, None), (functional.dropout, ("a", 0.3), {"training": False}, None),
        (len, ("a",), {}, None), (operator.add, ("a", "b"), {}, None),
    ]  # fmt: skip
    results = []
    for function, args, kwargs, kinds in calls:
        types = {name: type(value) for name, value in kwargs.items()} if kinds else None
        for only_kwargs in (False, True):
            pair = schemas.normalize_function(function, args, kwargs, kinds, types, only_kwargs)
            results.append(None if pair is None else [list(pair.args), pair.kwargs])
    return results


@example
def graphs_are_drawn(torch):
    drawer = fx_module(torch, "passes.graph_drawer").FxGraphDrawer
    shapes = fx_module(torch, "passes.shape_prop").ShapeProp

    class Leaf(torch.nn.Module):
        __constants__ = ("size", "kind")

        def __init__(self):
            super().__init__()
            self.size, self.kind = 3, "wide"

        def forward(self, x):
            return x * self.size

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf, self.scale = Leaf(), torch.nn.Parameter(torch.ones(4))
            self.part = torch.fx.symbolic_trace(torch.nn.ReLU())

        def forward(self, x):
            y = self.part(self.leaf(x).clamp(min=0.0, max=1.0) * self.scale)
            return torch.cat([y, torch.sum(y, 1, keepdim=True)], 1).view(1, 2, 5, -1), {"y": [y]}

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, path):
            return path in ("leaf", "part")

    model = Model()
    module = torch.fx.GraphModule(model, Tracer().trace(model))
    shapes(module).propagate(torch.ones(2, 4))
    for at, node in enumerate(module.graph.nodes):
        node.stack_trace = (
            f'File "/a/b/c.py", line {at}, in forward\n    x\nFile "/a/b/d.py", line 2, in f\n    y = {at}'
        )
    drawings = drawer(module, "model", parse_stack_trace=True)
    plain = drawer(
        module, "model", ignore_getattr=True, skip_node_names_in_args=False, dot_graph_shape="box"
    ).get_dot_graph()
    many = torch.fx.symbolic_trace(lambda *xs: torch.cat([xs[0]] * 12))
    named = drawer(torch.fx.symbolic_trace(lambda x: torch.softmax(x, 1)), "named", normalize_args=True)
    return [
        list(drawings.get_all_dot_graphs()),
        drawings.get_dot_graph("part") is drawings.get_submod_dot_graph("part"),
        drawings.get_dot_graph() is drawings.get_main_dot_graph(),
        *[described_drawing(one) for one in (*drawings.get_all_dot_graphs().values(), plain)],
        described_drawing(drawer(many, "many", skip_node_names_in_args=False).get_dot_graph()),
        described_drawing(named.get_dot_graph()),
    ]


def described_drawing(drawing: Any) -> list[Any]:
    nodes = [
        [node.get_name(), node.get_label(), node.get_shape(), node.get_fillcolor()] for node in drawing.get_nodes()
    ]
    for node in nodes:
        node[1] = re.sub(
            r"torch\.fx\.graph_module\.[\w.<>]+", "GraphModule", node[1]
        )  # its class has a name of its own
    return [nodes, [[edge.get_source(), edge.get_destination()] for edge in drawing.get_edges()]]
