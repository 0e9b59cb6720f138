"""Nodes by the layer or function of the program that they were made in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.fx.graph import Graph
from weft.fx.node import Node


@dataclass
class SourcePartition:
    """The nodes of one call of a layer or function.

    nodes         in order
    source        the class or function
    input_nodes   what they read from others, without attributes
    output_nodes  those that others read
    params        those that read attributes
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list[Node])
    output_nodes: list[Node] = field(default_factory=list[Node])
    params: list[Node] = field(default_factory=list[Node])


def get_source_partitions(
    graph: Graph, wanted_sources: Sequence[object], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """The nodes of each call of some layers and functions.

    A node comes from the last entry of `meta["source_fn_stack"]`, a pair of a name and a class or function. Without
    one, a call of a function comes from the innermost module of `meta["nn_module_stack"]`, which tracers note. With
    `filter_fn`, only calls for all of whose nodes it is true.
    """
    calls: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        if (match := _source(node, wanted_sources)) is not None:
            name, source = match
            calls.setdefault(source, {}).setdefault(name, []).append(node)
    return {
        source: [
            _partition(nodes, source) for nodes in by_name.values() if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for source, by_name in calls.items()
    }


def _source(node: Node, wanted: Sequence[object]) -> tuple[str, object] | None:
    """The name of the call that a node was made in, and which of the wanted classes and functions it is of."""
    if stack := node.meta.get("source_fn_stack"):
        name, source = stack[-1]
        return (name, source) if source in wanted else None
    modules = node.meta.get("nn_module_stack")
    if node.op != "call_function" or not modules:
        return None
    path, kind = list(modules.values())[-1]
    for source in wanted:
        if source is kind or (isinstance(source, type) and isinstance(kind, type) and issubclass(kind, source)):
            return path, source
    return None


def _partition(nodes: list[Node], source: object) -> SourcePartition:
    inside = set(nodes)
    inputs = dict.fromkeys(
        [x for node in nodes for x in node.all_input_nodes if x not in inside and x.op != "get_attr"]
    )
    params = [node for node in nodes if node.op == "get_attr"]
    outputs = [node for node in nodes if node.op != "get_attr" and any(user not in inside for user in node.users)]
    return SourcePartition(nodes, source, list(inputs), outputs, params)


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of the second reads from one of the first."""
    return any(user in subgraph2.nodes for node in subgraph1.nodes for user in node.users)
