"""Loggers in the graphs of two models that compute the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft import quantize_per_tensor
from weft._base.dtype import quint8
from weft._base.guards import is_list_or_tuple
from weft._base.types import AnyCallable, Args, PyTree
from weft._tensor.convert import tensor
from weft._tensor.quantized.encoding import is_quantized
from weft._tensor.tensor import Tensor
from weft.ao.ns.fx.graph_matcher import RECURRENT, Subgraph
from weft.ao.quantization.fx.names import numbered
from weft.ao.quantization.fx.operations import (
    Results,
    has_tensor,
    name_of,
    operation_of,
    scalar_form,
    takes_integers,
)
from weft.ao.quantization.fx.prepare import is_observer
from weft.fx._names import public_name, target_text
from weft.fx._paths import assign_at, attribute_at
from weft.fx._wrapping import as_one_node
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg

if TYPE_CHECKING:
    from weft.nn._module import Module

Pairs = dict[str, tuple[Subgraph, Subgraph]]
MakeLogger = AnyCallable


def type_text(node: Node, model: GraphModule) -> str:
    """What a node calls: the name of a class, function or method."""
    if node.op != "call_module":
        return target_text(node.target)
    module: Module = model.get_submodule(str(node.target))
    kind = type(module)
    return public_name(kind) or f"{kind.__module__}.{kind.__qualname__}"


def fqn_of(node: Node) -> str:
    """The path of the module that a node calls, or in which it is."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    return next(reversed(stack.values()))[0] if stack else ""


def with_own_graph(model: GraphModule) -> GraphModule:
    """A graph module with the same modules and a copy of the graph."""
    return GraphModule(model, copy.deepcopy(model.graph), type(model).__name__)


def tensor_inputs(node: Node) -> Iterator[tuple[int, int, Node]]:
    """The inputs of a node, without weights: the place of the argument, the place in it, and the node.

    Of a sum or product of a tensor and a number, which are either way round, the tensor counts as the first one.
    """
    is_scalar = bool(scalar_form(node))
    for at, arg in enumerate((*node.args, *node.kwargs.values())):
        for within, part in enumerate(arg if is_list_or_tuple(arg) else (arg,)):
            if isinstance(part, Node) and has_tensor(part) and behind_observer(part).op != "get_attr":
                yield 0 if is_scalar else at, within, part


def behind_observer(node: Node) -> Node:
    """The node that an observer looks at; other nodes themselves."""
    source = node.args[0] if is_observer(node) else node
    return source if isinstance(source, Node) else node


def _result(end: Node) -> Node:
    """The node with the results of a subgraph: those on their grid, where they are put on one afterwards."""
    return next((user for user in end.users if is_observer(user) or name_of(user) == "torch.quantize_per_tensor"), end)


def _add_logger(model: GraphModule, named: Node, value: Node, suffix: str, logger: Module) -> None:
    """Record `value` by a logger with a name like that of the node `named`."""
    number = 0
    while hasattr(model, f"{named.name}_ns_logger_{suffix}{number}"):
        number += 1
    path = f"{named.name}_ns_logger_{suffix}{number}"
    model.add_submodule(path, logger)
    with model.graph.inserting_after(value):
        model.graph.call_module(path, (value,))


def add_loggers(
    model: GraphModule, name: str, parts: dict[str, Subgraph], make: MakeLogger, inputs: bool
) -> GraphModule:
    """A model with loggers of the results, and of the inputs if asked to, of its subgraphs."""
    result = with_own_graph(model)
    nodes = {node.name: node for node in result.graph.nodes}
    for ref_name, part in parts.items():
        start, end = nodes[part.start.name], nodes[part.end.name]
        kind, fqn = type_text(part.start, model), fqn_of(part.start)
        for at, within, value in list(tensor_inputs(start)) if inputs else ():
            kinds = (type_text(value, model), kind)
            logger = make(start.name, value.name, name, ref_name, *kinds, "node_input", within, at, fqn, "")
            _add_logger(result, value, value, "", logger)
        kinds = (type_text(part.end, model), kind)
        logger = make(end.name, end.name, name, ref_name, *kinds, "node_output", 0, 0, fqn, "")
        _add_logger(result, end, _result(end), "", logger)
    result.recompile()
    return result


@as_one_node
def numbers_of(x: PyTree) -> PyTree:
    """The numbers that a quantized tensor stands for; anything else as it is."""
    return x.dequantize() if isinstance(x, Tensor) and is_quantized(x) else x


@as_one_node
def on_grid(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Numbers on a grid of unsigned integers; a quantized tensor as it is."""
    return x if is_quantized(x) else quantize_per_tensor(x, scale.item(), int(zero_point.item()), quint8)


def _grid(node: Node, model: GraphModule) -> tuple[PyTree, PyTree] | None:
    """The scale and zero point of a value of a converted model; None if it has floats, or a grid that is not known."""
    while True:
        arguments: Args = ()
        own = operation_of(node, model)
        if node.op == "call_module" and takes_integers(node, model):
            module = model.get_submodule(str(node.target))
            arguments = (getattr(module, "scale", None), getattr(module, "zero_point", None))
        elif name_of(node) == "torch.quantize_per_tensor":
            arguments = node.args[1:3]
        elif "zero_point" in node.kwargs:
            arguments = (node.kwargs["scale"], node.kwargs["zero_point"])
        elif own is not None and own.results is Results.SHARED and node.all_input_nodes:
            node = node.all_input_nodes[0]
            continue
        if not arguments or None in arguments:
            return None
        scale, zero_point = (attribute_at(model, x.target) if isinstance(x, Node) else x for x in arguments)
        return scale, zero_point


class _Shadows:
    """Puts subgraphs of the model `a` beside those of `b`, on the same inputs."""

    def __init__(self, a: GraphModule, b: GraphModule) -> None:
        self.a, self.b = a, with_own_graph(b)
        self.nodes = {node.name: node for node in self.b.graph.nodes}

    def _new_path(self, name: str) -> str:
        number = 0
        while hasattr(self.b, f"{name}_shadow_copy_{number}"):
            number += 1
        return f"{name}_shadow_copy_{number}"

    def _copy(self, node: Node, inputs: dict[Node, Node], name: str) -> Node:
        """A node of `a` within `b`, with weights of `a`."""

        def argument(x: Node) -> Node:
            source = behind_observer(x)
            if x in inputs or source.op != "get_attr":
                return inputs.get(x, x)
            path = self._new_path(source.name)
            assign_at(self.b, path, attribute_at(self.a, str(source.target)))
            return self.b.graph.get_attr(path)

        args, kwargs = map_arg(node.args, argument), map_arg(node.kwargs, argument)
        target = node.target
        if node.op == "call_module":
            target = self._new_path(name)
            self.b.add_submodule(target, self.a.get_submodule(str(node.target)))
        return self.b.graph.create_node(node.op, target, args, kwargs, name=f"{name}_shadow_copy")

    def add(self, part_a: Subgraph, part_b: Subgraph) -> tuple[Node, Node, Node, Node] | None:
        """The inputs and results of both.

        None where they have more than one input, whose shadow would be unclear, unless the others are states, or where
        the shadow takes integers on a grid that is not known.
        """
        start, end = self.nodes[part_b.start.name], self.nodes[part_b.end.name]
        own, other = list(tensor_inputs(start)), list(tensor_inputs(part_a.start))
        # Shadows of recurrent layers get the same states, as otherwise they would compute something else from the
        # second step on.
        if len(own) != len(other) or not (len(own) == 1 or part_a.base in RECURRENT):
            return None
        grid = _grid(other[0][2], self.a)
        if grid is None and takes_integers(part_a.start, self.a):
            return None
        before = end.next
        with self.b.graph.inserting_before(before):
            source = self._input(own[0][2], grid, start.name)
            inputs = {one: state for (*_, one), (*_, state) in zip(other, own, strict=True)} | {other[0][2]: source}
            result = source
            for node in part_a.nodes:
                result = self._copy(node, inputs, start.name)
                inputs = {node: result}
        return own[0][2], end, source, result

    def _input(self, value: Node, grid: tuple[object, object] | None, name: str) -> Node:
        """A value of `b` as a shadow takes it."""
        if grid is None:
            return self.b.graph.call_function(numbers_of, (value,))
        attributes: list[Node] = []
        for kind, number in zip(("scale", "zero_point"), grid, strict=True):
            path = numbered(f"{name}_input_{kind}", dir(self.b))
            setattr(self.b, path, number if isinstance(number, Tensor) else tensor(number))
            attributes.append(self.b.graph.get_attr(path))
        return self.b.graph.call_function(on_grid, (value, *attributes))


def add_shadows(
    names: tuple[str, str], a: GraphModule, b: GraphModule, pairs: Pairs, make: MakeLogger, inputs: bool
) -> GraphModule:
    """The second model with the subgraphs of the first one as shadows, and loggers of the results of both."""
    shadows = _Shadows(a, b)
    for ref_name, (part_a, part_b) in pairs.items():
        added = shadows.add(part_a, part_b)
        if added is None:
            continue
        input_b, end_b, input_a, end_a = added
        for name, suffix, model, part, value, result in (
            (names[0], "a_", a, part_a, input_a, end_a),
            (names[1], "b_", b, part_b, input_b, end_b),
        ):
            kinds, fqn = (type_text(part.end, model), type_text(part.start, model)), fqn_of(part.start)
            if inputs:
                logger = make(result.name, value.name, name, ref_name, *kinds, "node_input", 0, 0, fqn, "")
                _add_logger(shadows.b, value, value, suffix, logger)
            logger = make(result.name, result.name, name, ref_name, *kinds, "node_output", 0, 0, fqn, "")
            _add_logger(shadows.b, result, _result(result), suffix, logger)
    shadows.b.recompile()
    return shadows.b
