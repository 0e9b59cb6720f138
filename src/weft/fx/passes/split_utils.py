"""Splitting a graph by tags of its nodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import getitem

from weft._base.types import AttributeValue
from weft.errors import PreconditionError
from weft.fx._paths import assign_at, attribute_at, has_attribute_at
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.fx.passes.utils.common import HolderModule, lift_subgraph_as_module


def getattr_recursive(obj: object, name: str) -> AttributeValue:
    """The attribute at a dotted path, or None."""
    return attribute_at(obj, name) if has_attribute_at(obj, name) else None


def setattr_recursive(obj: object, attr: str, value: AttributeValue) -> None:
    """Set the attribute at a dotted path; `AttributeError` if there is nothing on the way."""
    above, _, name = attr.rpartition(".")
    setattr(attribute_at(obj, above) if above else obj, name, value)


@dataclass
class Component:
    """A part of a graph.

    graph               the part
    order               its number
    name                its tag
    input_placeholders  its inputs
    orig_inputs         the nodes of the whole graph that stand for these
    orig_outputs        the nodes of the whole graph whose results it returns
    getattr_maps        its nodes that read attributes, by those of the whole graph
    gm                  the module that runs it, once there is one
    """

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list[Node])
    orig_inputs: list[Node] = field(default_factory=list[Node])
    orig_outputs: list[Node] = field(default_factory=list[Node])
    getattr_maps: dict[Node, Node] = field(default_factory=dict[Node, Node])
    constructor_args: list[str] = field(default_factory=list[str])
    gm: GraphModule | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> GraphModule | tuple[GraphModule, dict[str, str]]:
    """A module whose graph calls the parts of that of `gm`: submodules that are called as the tags, in their order.

    Each node that calls something has a tag, the attribute `node.tag`. A node may read from its own part and from
    those of tags before; otherwise `AssertionError` is raised. With `return_tuple`, parts with one result return a
    tuple, too. With `return_fqn_mapping` the result is a pair of the module and of the new path for each old path of
    a module or tensor.
    """
    parts = {tag: Component(Graph(), order, tag) for order, tag in enumerate(tags)}
    part_of: dict[Node, Component] = {}
    copies: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_module", "call_function", "call_method"):
            part_of[node] = _part_of(node, parts, part_of)
            _copy_into_part(node, part_of, copies)
    output = gm.graph.output_node()
    _find_outputs(parts, output, part_of)
    main = Graph()
    main_map: dict[Node, Node] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        main_map[node] = main.placeholder(node.name, node.type)
        main_map[node].meta = copy.copy(node.meta)
    root = HolderModule({})
    for node in output.all_input_nodes:
        # Results that are attributes belong to no part.
        if node.op == "get_attr":
            assign_at(root, node.name, attribute_at(gm, node.target))
            main_map[node] = main.get_attr(node.name, node.type)
    paths: dict[str, str] = {}
    for part in parts.values():
        results = tuple([copies[node] for node in part.orig_outputs])
        is_single = len(results) == 1 and not return_tuple
        part.graph.output(results[0] if is_single else results)
        part.gm, own_paths = lift_subgraph_as_module(gm, part.graph, part.name)
        paths.update(own_paths)
        root.add_module(part.name, part.gm)
        call = main.call_module(part.name, tuple([main_map[node] for node in part.orig_inputs]))
        for at, node in enumerate(part.orig_outputs):
            main_map[node] = call if is_single else main.call_function(getitem, (call, at))
    main.output(map_arg(output.args[0], main_map.__getitem__))
    main.set_codegen(gm.graph._codegen)  # pyright: ignore[reportPrivateUsage]  PyTorch's name
    result = GraphModuleCls(root, main)
    return (result, paths) if return_fqn_mapping else result


def _part_of(node: Node, parts: Mapping[str, Component], part_of: Mapping[Node, Component]) -> Component:
    """The part that a node's tag says, after a check that it may read from those of its inputs."""
    tag = getattr(node, "tag", None)
    if tag is None:
        raise PreconditionError(f"Node does not have tag: {node.format_node()}; set node.tag to one of {list(parts)}")
    if tag not in parts:
        raise PreconditionError(f"split_by_tags: '{node}' has the tag {tag!r}, and tags has only {list(parts)}")
    latest = max([part_of[source].order for source in node.all_input_nodes if source in part_of], default=0)
    if parts[tag].order < latest:
        raise PreconditionError(
            f"Component {tag} order must be >= max of its upstream components, order={parts[tag].order} and "
            f"max={latest}: '{node}' reads from a later part"
        )
    return parts[tag]


def _copy_into_part(node: Node, part_of: Mapping[Node, Component], copies: dict[Node, Node]) -> None:
    """Copy a node into the graph of its part."""
    part = part_of[node]

    def own_node(source: Node) -> Node:
        if source.op == "get_attr":
            if source not in part.getattr_maps:
                part.getattr_maps[source] = part.graph.node_copy(source)
            return part.getattr_maps[source]
        if part_of.get(source) is part:
            return copies[source]
        if source not in part.orig_inputs:
            placeholder = part.graph.placeholder(source.name, source.type)
            placeholder.meta = copy.copy(source.meta)
            part.orig_inputs.append(source)
            part.input_placeholders.append(placeholder)
        return part.input_placeholders[part.orig_inputs.index(source)]

    copies[node] = part.graph.node_copy(node, own_node)
    setattr(copies[node], "tag", part.name)  # noqa: B010  no attribute of all nodes


def _find_outputs(parts: Mapping[str, Component], output: Node, part_of: Mapping[Node, Component]) -> None:
    """Note for each part the nodes that others read, in the order in which they do."""
    read = dict.fromkeys([node for part in parts.values() for node in part.orig_inputs])
    read.update(dict.fromkeys(output.all_input_nodes))
    for node in read:
        if node in part_of:
            part_of[node].orig_outputs.append(node)
