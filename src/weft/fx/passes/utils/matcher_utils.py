"""Finding the places of a graph that have the form of another one."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from weft._base.guards import is_dict, is_list_or_tuple, is_slice
from weft._base.types import Arg, AttributeValue, PyTree
from weft.errors import PreconditionError, ValueRangeError
from weft.fx._paths import attribute_at, has_attribute_at
from weft.fx.graph import Graph
from weft.fx.node import Node


@dataclass
class InternalMatch:
    """A place of a graph that a pattern fits.

    anchors            the nodes of the pattern at which the search began: its last ones
    nodes_map          the node, or the constant, that stands for each node of the pattern
    placeholder_nodes  what stands for the inputs of the pattern, in order
    returning_nodes    what stands for what the pattern returns, in order
    name_node_map      by name, if the pattern ends with a dict of nodes
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict[Node, Any])
    placeholder_nodes: list[Any] = field(default_factory=list[Any])
    returning_nodes: list[Node] = field(default_factory=list[Node])
    name_node_map: dict[str, Node] = field(default_factory=dict[str, Node])

    def __copy__(self) -> InternalMatch:
        nodes = list(self.placeholder_nodes), list(self.returning_nodes)
        return InternalMatch(self.anchors, dict(self.nodes_map), *nodes)


class SubgraphMatcher:
    """Finds a pattern in graphs.

    A node fits if it does the same, with inputs that fit; an input of the pattern fits everything, always the same.
    What the pattern computes on the way may not be used elsewhere. With `match_output` and `match_placeholder` outputs
    and inputs of the pattern fit only such; with `ignore_literals` constants may differ.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        if len(pattern.nodes) == 0:
            raise ValueRangeError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.is_impure() and not node.users:
                raise PreconditionError(
                    f"SubgraphMatcher cannot be initialized with an pattern with dead code: nobody uses {node}"
                )
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        output = pattern.output_node()
        self.pattern_placeholder_nodes = pattern.find_nodes(op="placeholder")
        self.pattern_returning_nodes = output.all_input_nodes
        last = [node for node in output.all_input_nodes if len(node.users) == 1]
        self.pattern_anchors = [output] if match_output else last

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The places in the order of the graph. Of such that overlap there is the first, unless that is turned off."""
        matches: list[InternalMatch] = [InternalMatch(anchors=self.pattern_anchors)]
        for anchor in self.pattern_anchors:
            candidates = [node for node in graph.nodes if self._nodes_are_equal(anchor, node)]
            extended: list[InternalMatch] = []
            for partial in matches:
                for node in candidates:
                    match = copy.copy(partial)
                    if self._match_nodes(anchor, node, match):
                        extended.append(match)
            matches = extended
        matches = [match for match in matches if match.nodes_map and self._is_contained(match.nodes_map)]
        for match in matches:
            match.placeholder_nodes = [
                match.nodes_map[node] for node in self.pattern_placeholder_nodes if node in match.nodes_map
            ]
            match.returning_nodes = [match.nodes_map[node] for node in self.pattern_returning_nodes]
        return self._without_overlap(matches) if self.remove_overlapping_matches else matches

    def _is_contained(self, nodes_map: dict[Node, Arg]) -> bool:
        """Whether nobody else uses what the pattern computes on the way."""
        inside = {node for node in nodes_map.values() if isinstance(node, Node)}
        for own, node in nodes_map.items():
            if own.op in ("placeholder", "output", "get_attr") or own in self.pattern_returning_nodes:
                continue
            if any(user not in inside for user in node.users):
                return False
        return True

    def _without_overlap(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        kept: list[InternalMatch] = []
        used: set[Node] = set()
        for match in matches:
            own = {node for key, node in match.nodes_map.items() if key.op not in ("placeholder", "output", "get_attr")}
            if used.isdisjoint(own):
                kept.append(match)
                used |= own
        return kept

    # --- nodes and arguments ----------------------------------------------------------------------------------

    def _nodes_are_equal(self, pn: Node, gn: Node) -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return type(_attribute(pn)) is type(_attribute(gn)) if pn.op == "get_attr" else pn.target == gn.target

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch) -> bool:
        """Whether `gn` fits `pn`, and then note it and its inputs in the match."""
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if any(gn is other for other in match.nodes_map.values()) or not self._nodes_are_equal(pn, gn):
            return False
        saved = dict(match.nodes_map)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder" or self._match_arguments(pn, gn, match):
            return True
        match.nodes_map = saved
        return False

    def _match_arguments(self, pn: Node, gn: Node, match: InternalMatch) -> bool:
        if len(pn.args) != len(gn.args) or set(pn.kwargs) != set(gn.kwargs):
            return False
        return self._match_parts((pn.args, pn.kwargs), (gn.args, gn.kwargs), match)

    def _match_parts(self, ours: object, theirs: object, match: InternalMatch) -> bool:
        if isinstance(ours, Node):
            if isinstance(theirs, Node):
                return self._match_nodes(ours, theirs, match)
            if ours.op != "placeholder" or self.match_placeholder:
                return False
            return _is_same(match.nodes_map.setdefault(ours, theirs), theirs)
        if isinstance(theirs, Node):
            return False
        if is_list_or_tuple(ours):
            return is_list_or_tuple(theirs) and len(ours) == len(theirs) and self._match_all(ours, theirs, match)
        if is_dict(ours):
            if not is_dict(theirs) or set(ours) != set(theirs):
                return False
            return self._match_all(ours.values(), [theirs[key] for key in ours], match)
        if is_slice(ours) and is_slice(theirs):
            return self._match_all((ours.start, ours.stop, ours.step), (theirs.start, theirs.stop, theirs.step), match)
        return self.ignore_literals or _is_same(ours, theirs)

    def _match_all(self, ours: Iterable[object], theirs: Iterable[object], match: InternalMatch) -> bool:
        return all(self._match_parts(a, b, match) for a, b in zip(ours, theirs, strict=True))


def _is_same(a: PyTree, b: object) -> bool:
    return a is b or (type(a) is type(b) and not isinstance(a, Node) and bool(a == b))


def _attribute(node: Node) -> AttributeValue:
    """What a node reads; None if the graph has no such module."""
    module = node.graph.owning_module
    return attribute_at(module, node.target) if has_attribute_at(module, node.target) else None
