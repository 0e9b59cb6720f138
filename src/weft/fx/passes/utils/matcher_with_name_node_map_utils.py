"""Finding the places of a graph that have the form of another one, whose nodes have names."""

from __future__ import annotations

import copy

from weft._base.guards import is_dict, is_list_or_tuple
from weft.errors import PreconditionError
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A `SubgraphMatcher` whose matches have `name_node_map`: the nodes of the graph by names.

    The pattern says the names in a dict after its results: `return y, {"conv": conv, "relu": y}`. Raises
    `AssertionError` if it returns nothing of this form.
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern = copy.deepcopy(pattern_gm.graph)
        output = pattern.output_node()
        returned = pattern.process_outputs(output.args[0])
        if not is_list_or_tuple(returned) or len(returned) < 2 or not is_dict(returned[-1]):
            raise PreconditionError(
                "SubgraphMatcherWithNameNodeMap: the pattern must return its results and then a dict from names to "
                f"nodes, got {returned}"
            )
        *results, names = returned
        self.name_node_map: dict[str, Node] = dict(names)
        output.args = (results[0] if len(results) == 1 else tuple(results),)
        super().__init__(pattern, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The places, with the nodes that have names."""
        matches = super().match(graph)
        for match in matches:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
        return matches
