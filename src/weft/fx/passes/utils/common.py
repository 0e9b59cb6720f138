"""Modules of graphs that are parts of another one, and comparing graphs."""

from __future__ import annotations

from collections.abc import Mapping

from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.passes.utils.matcher_utils import SubgraphMatcher
from weft.nn._module import Module


class HolderModule(Module):
    """A module that only holds others, by name."""

    def __init__(self, d: Mapping[str, Module | None]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A module of a graph whose nodes are copies of some of `gm`, with which it shares what they refer to.

    Returns it and, for each path in `gm` that it refers to, the path below a submodule `comp_name` of the whole.
    """
    paths = {
        node.target: f"{comp_name}.{node.target}" for node in subgraph.nodes if node.op in ("call_module", "get_attr")
    }
    return GraphModule(gm, subgraph, class_name), paths


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs do the same with as many inputs, and return as many results, in the same order."""
    return bool(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
