"""Splitting a graph into modules that run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import getitem

from weft._base.types import AttributeValue
from weft.errors import OutOfRangeError
from weft.fx._paths import attribute_at
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.nn._module import Module


@dataclass
class Partition:
    """A part of a graph: its nodes, what it reads from others, and what others read from it; all in order."""

    name: str
    submod_name: str
    nodes: list[Node] = field(default_factory=list[Node])
    inputs: dict[Node, None] = field(default_factory=dict[Node, None])
    outputs: dict[Node, None] = field(default_factory=dict[Node, None])
    before: dict[str, None] = field(default_factory=dict[str, None])
    graph: Graph = field(default_factory=Graph)


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], int | None],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool = False,
    keep_original_node_name: bool = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module whose graph calls the parts of that of `m`, submodules `submod_0`, `submod_1` and so on.

    `split_callback(node)` gives the part of each node that calls something: a number, or None for nodes that stay in
    the graph of the result. `root_m` has what the graph refers to; None for `m` itself. Parts run in the order of their
    dependencies or, with `keep_original_order`, of their first nodes; parts that need each other raise `RuntimeError`.
    `qualname_map` gets the old path for each new path of a module or tensor. Names of parts contain
    `partition_affix`; with `tuple_return` a part with one result returns a tuple, too.
    """
    root = m if root_m is None else root_m
    part_of = _partitioned(m.graph, split_callback, f"{partition_affix}_" if partition_affix else "")
    parts = {part.name: part for part in part_of.values()}
    waiting = list(parts.values()) if keep_original_order else _sorted(parts)
    names = (keep_original_node_name, keep_original_input_name)
    base = Graph()
    base_map: dict[Node, Node] = {}
    attributes: dict[str, AttributeValue] = {}

    def call_ready_parts() -> None:
        while waiting and all(source in base_map for source in waiting[0].inputs):
            part = waiting.pop(0)
            attributes[part.submod_name] = _part_module(root, part, qualname_map, names, tuple_return)
            call = base.call_module(part.submod_name, tuple([base_map[source] for source in part.inputs]))
            _bind_outputs(base, call, part, base_map, tuple_return)

    # Inputs keep their order in the signature, wherever the graph has them; attributes come before all parts that may
    # read them.
    first = [node for node in m.graph.nodes if node.op in ("placeholder", "get_attr")]
    for node in (*first, *[node for node in m.graph.nodes if node.op not in ("placeholder", "get_attr")]):
        if node in part_of:
            continue
        if node not in first:
            # As late as possible: a part may need nodes that stay in the outer graph.
            call_ready_parts()
        if node.op == "output":
            if waiting:
                raise OutOfRangeError("cycle exists between partitions!")
            base.output(map_arg(node.args[0], lambda n: base_map[n]), node.type).meta = dict(node.meta)
            continue
        base_map[node] = base.node_copy(node, lambda n: base_map[n])
        if node.op in ("get_attr", "call_module"):
            attributes[node.target] = attribute_at(root, node.target)
    return GraphModule(attributes, base)


def _partitioned(graph: Graph, number_of: Callable[[Node], int | None], affix: str) -> dict[Node, Partition]:
    """The part of each node that is in one, with what parts read from others."""
    parts: dict[str, Partition] = {}
    part_of: dict[Node, Partition] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or (number := number_of(node)) is None:
            continue
        name = str(number)
        part = part_of[node] = parts.setdefault(name, Partition(name, f"submod_{affix}{name}"))
        part.nodes.append(node)
    for node in graph.nodes:
        for source in node.all_input_nodes:
            _note_dependency(source, node, part_of)
    return part_of


def _note_dependency(source: Node, user: Node, part_of: dict[Node, Partition]) -> None:
    there, here = part_of.get(source), part_of.get(user)
    if there is here and there is not None:
        return
    if here is not None:
        here.inputs.setdefault(source)
    if there is not None:
        there.outputs.setdefault(source)
        if here is not None:
            here.before.setdefault(there.name)


def _sorted(parts: dict[str, Partition]) -> list[Partition]:
    """The parts, each after those that it reads from, else in their order."""
    order: list[Partition] = []
    done: set[str] = set()
    while len(order) < len(parts):
        ready = next((p for name, p in parts.items() if name not in done and done.issuperset(p.before)), None)
        if ready is None:
            raise OutOfRangeError("cycle exists between partitions!")
        order.append(ready)
        done.add(ready.name)
    return order


def _part_module(
    root: Module,
    part: Partition,
    qualname_map: dict[str, str] | None,
    keep_names: tuple[bool, bool],
    tuple_return: bool,
) -> GraphModule:
    """The module of a part, with the modules that it calls under names of its own.

    `keep_names` says whether its nodes, and its inputs, have the names of those that they are made of.
    """
    keep_node_names, keep_input_names = keep_names
    graph, val_map, targets = part.graph, dict[Node, Node](), dict[str, AttributeValue]()
    for at, source in enumerate(part.inputs):
        val_map[source] = graph.placeholder(source.name if keep_input_names else f"arg_{at}", source.type)
        val_map[source].meta = dict(source.meta)
    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = _own_name(node.target, root, targets, part, qualname_map)
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: val_map[n])
        name = node.name if keep_node_names else None
        new = val_map[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)
        new.meta = dict(node.meta)
    results = tuple([val_map[node] for node in part.outputs])
    graph.output(results if len(results) != 1 or tuple_return else results[0])
    return GraphModule(targets, graph)


def _own_name(
    target: str, root: Module, targets: dict[str, AttributeValue], part: Partition, names: dict[str, str] | None
) -> str:
    """The name under which a part has an object of the root: its path with underscores."""
    own = target.replace(".", "_")
    targets[own] = attribute_at(root, target)
    if names is not None:
        names[f"{part.submod_name}.{own}"] = target
    return own


def _bind_outputs(base: Graph, call: Node, part: Partition, base_map: dict[Node, Node], tuple_return: bool) -> None:
    """Let the nodes of the part that others read stand for parts of its result."""
    outputs = list(part.outputs)
    if len(outputs) == 1 and not tuple_return:
        base_map[outputs[0]] = call
        call.meta = dict(outputs[0].meta)
        return
    for at, node in enumerate(outputs):
        base_map[node] = base.call_function(getitem, (call, at))
        base_map[node].meta = dict(node.meta)


def split_module_simple(
    m: GraphModule, node_to_partition: Mapping[Node, int], *, partition_affix: str | None = None
) -> GraphModule:
    """`split_module` by a table: the number of the part of each node that calls something.

    Parts run in the order of their first nodes.
    """
    return split_module(
        m, None, node_to_partition.__getitem__, keep_original_order=True, partition_affix=partition_affix
    )
