"""Replacing parts of a graph by others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg
from weft.errors import PreconditionError
from weft.fx._paths import assign_at, attribute_at, has_attribute_at
from weft.fx._symbolic_trace import symbolic_trace
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from weft.nn._module import Module

T = TypeVar("T")

Pattern: TypeAlias = Callable[..., Any] | Graph | GraphModule
"""A program to look for, or to put in: it is traced unless it is a graph."""
Filter: TypeAlias = Callable[[InternalMatch, Graph, Graph], bool]
"""Whether a match, in this graph, of this pattern, is to be replaced."""


class Match(NamedTuple):
    """A place that has been replaced: the last node of it, and for each node of the pattern what stood for it."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place that has been replaced, as in `Match`, and the nodes that have been put in."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Replace every part of a graph that does what `pattern` does by what `replacement` does, and recompile.

    Both are functions with the same parameters, or graphs or modules with as many inputs. Parts fit if they have the
    same nodes with the same constants; `wrap` and modules count as the graph has them. Of parts that overlap the first
    is replaced. Modules and tensors of a replacement that is a module are added to `gm`.
    """
    replaced = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(place.anchor, place.nodes_map) for place in replaced]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    """`replace_pattern` for the places for which all `match_filters` are true.

    With `ignore_literals` constants may differ. Instead of `replacement`, `replacement_callback(match, graph, pattern)`
    may give a graph for each place.
    """
    graph = gm.graph
    pattern_graph = _graph_of(pattern)
    if (replacement is None) == (replacement_callback is None):
        raise PreconditionError("Must provide either replacement GraphModule or replacement callback, and not both")
    fixed = None if replacement is None else _graph_of(replacement)
    matches = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals).match(graph)
    chosen = [m for m in matches if all(accepts(m, graph, pattern_graph) for accepts in match_filters or ())]
    successors: dict[Node, Node] = {}  # what has replaced nodes that later matches refer to
    replaced: list[ReplacedPatterns] = []
    for match in chosen:
        new = fixed if replacement_callback is None else replacement_callback(match, graph, pattern_graph)
        assert new is not None
        replaced.append(_replace(graph, match, new, successors))
    if isinstance(replacement, Module) and replaced:
        _add_attributes(gm, replacement)
    gm.recompile()
    return replaced


def _graph_of(program: Pattern) -> Graph:
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _replace(graph: Graph, match: InternalMatch, new: Graph, successors: dict[Node, Node]) -> ReplacedPatterns:
    """Put the nodes of `new` where the match ends, and remove those of the match."""
    inputs = new.find_nodes(op="placeholder")
    if len(inputs) != len(match.placeholder_nodes):
        raise PreconditionError(
            f"the replacement has {len(inputs)} inputs and the pattern has {len(match.placeholder_nodes)}: both need "
            "the same, and the pattern must use all of them"
        )
    returned = new.output_node().args[0]
    count = len(returned) if is_list_or_tuple(returned) else 1
    if count != len(match.returning_nodes):
        raise PreconditionError(
            f"the replacement returns {count} values and the pattern returns {len(match.returning_nodes)}"
        )
    values = [_latest(x, successors) for x in match.placeholder_nodes]
    val_map: dict[Node, Arg] = dict(zip(inputs, values, strict=True))
    returning = set(match.returning_nodes)
    users = {user for node in returning for user in node.users}
    point = next((node for node in graph.nodes if node in users), None)
    if point is None:
        point = next(node for node in reversed(graph.nodes) if node in returning).next
    with graph.inserting_before(point):
        result = graph.graph_copy(new, val_map)
    results = list(result) if is_list_or_tuple(result) else [result]
    for old, value in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(value)
        successors[old] = value
    own = {node for key, node in match.nodes_map.items() if key.op not in ("placeholder", "output")}
    for node in reversed(graph.nodes):
        if node in own and not node.users:
            graph.erase_node(node)
    added = [node for key, node in val_map.items() if key not in inputs]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)


def _latest(x: T, successors: dict[Node, Node]) -> T:
    while isinstance(x, Node) and x in successors:
        x = successors[x]
    return x


def _add_attributes(gm: GraphModule, replacement: Module) -> None:
    """Give `gm` the modules and tensors of the replacement that its graph uses and that it does not have."""
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr") and not has_attribute_at(gm, node.target):
            assign_at(gm, node.target, copy.deepcopy(attribute_at(replacement, node.target)))
    gm.delete_all_unused_submodules()
    gm.graph.lint()
