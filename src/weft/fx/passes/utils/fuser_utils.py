"""Making a submodule of a part of a graph."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
from collections.abc import Mapping
from operator import getitem
from typing import Any

from weft.errors import PreconditionError
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes._order import stable_order
from weft.fx.passes.tools_common import NodeList, stable_topological_sort
from weft.fx.passes.utils.common import lift_subgraph_as_module


def topo_sort(nodes: NodeList) -> NodeList:
    """The nodes, each after those of them that it reads, and else in their order; `AssertionError` if there is none."""
    order = stable_order(nodes)
    if len(order) != len(nodes):
        raise PreconditionError(
            f"topo_sort: only {len(order)} of {len(nodes)} nodes can be sorted; the others form a circle"
        )
    return order


def validate_partition(partition: NodeList) -> bool:
    """Whether no path leaves the nodes and comes back, so that they can be computed at once."""
    inside = set(partition)
    waiting = [user for node in partition for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(node.users)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: Mapping[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module that computes nodes of `gm`, given in their order; its class is called `module_name`.

    Returns it, the nodes that it reads, which are its inputs, and the nodes that others read, whose results it returns:
    one alone, unless `always_return_tuple`, or a tuple. `partition_lookup_table` has the nodes as keys. Raises
    `AssertionError` for nodes that are not in the graph, or that cannot be computed at once.
    """
    for node in nodes:
        if node.graph.owning_module is not gm or node._erased:
            raise PreconditionError(f"fuse_as_graphmodule: '{node}' is not a node of the graph of {type(gm).__name__}")
    if not validate_partition(nodes):
        raise PreconditionError(
            f"Invalid partition, found dependency cycles: other nodes read from {nodes} and are read by them; add these"
        )
    inside = dict.fromkeys(nodes) if partition_lookup_table is None else partition_lookup_table
    subgraph = Graph()
    inputs: dict[Node, Node] = {}
    copies: dict[Node, Node] = {}

    def own_node(source: Node) -> Node:
        if source in inside:
            return copies[source]
        if source not in inputs:
            inputs[source] = subgraph.placeholder(source.name, type_expr=source.type)
            inputs[source].meta = copy.copy(source.meta)
        return inputs[source]

    for node in nodes:
        copies[node] = subgraph.node_copy(node, own_node)
    outputs = tuple([node for node in nodes if any(user not in inside for user in node.users)])
    results = tuple([copies[node] for node in outputs])
    subgraph.output(results if always_return_tuple or len(results) != 1 else results[0])
    subgraph.lint()
    module, _ = lift_subgraph_as_module(gm, subgraph, class_name=module_name)
    return module, tuple(inputs), outputs


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call a module of `fuse_as_graphmodule` where its results are read. Returns `gm`.

    It becomes the submodule that has the name of its class. The call is inserted after `insertion_point`, by default
    the last of `orig_outputs`; `AssertionError` if there is neither. Nodes that are not read any more stay.
    """
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    point = insertion_point or next((node for node in reversed(gm.graph.nodes) if node in orig_outputs), None)
    if point is None:
        raise PreconditionError(f"insert_subgm: {name} has no outputs, so it needs an insertion_point: its last node")
    with gm.graph.inserting_after(point):
        call = gm.graph.call_module(name, orig_inputs)
    result: Any = sub_gm.graph.output_node().args[0]
    if len(orig_outputs) == 1 and not isinstance(result, tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
    elif orig_outputs:
        with gm.graph.inserting_before(call.next):
            for at, output in enumerate(orig_outputs):
                part = gm.graph.call_function(getitem, (call, at))
                output.replace_all_uses_with(part, propagate_meta=True)
        call.meta["val"] = tuple([output.meta.get("val") for output in orig_outputs])
    return gm


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Erase nodes, given in their order, that only they read."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Make a submodule of each part of a graph, called `fused_0`, `fused_1` and so on. Changes and returns `gm`.

    A part has its nodes as keys. Raises `AssertionError` if one cannot be computed at once.
    """
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        module, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, module, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
