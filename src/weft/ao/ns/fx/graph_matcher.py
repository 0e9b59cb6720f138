"""Which parts of the graphs of two models compute the same: a float or prepared one, and its quantized form."""

from __future__ import annotations

from dataclasses import dataclass

from weft.ao.quantization.fx.fuse import chains
from weft.ao.quantization.fx.operations import base_of, relu_after
from weft.errors import WeftError
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn._activation import ReLU

RECURRENT = ("LSTM", "GRU")
"""Layers that take states besides their input, and whose results are tuples."""


class GraphMatchingException(WeftError):
    """Two graphs do not compute the same in the same order."""


@dataclass(frozen=True)
class Subgraph:
    """Nodes that are quantized as one: a layer, or a function, with its normalisation and ReLU.

    base   what the first of them computes, such as "Conv2d" or "add"
    nodes  in order
    """

    base: str
    nodes: tuple[Node, ...]

    @property
    def start(self) -> Node:
        """The node that gets the inputs."""
        return self.nodes[0]

    @property
    def end(self) -> Node:
        """The node that has the results."""
        return self.nodes[-1]


def _used(model: GraphModule) -> set[Node]:
    """The nodes on which the output depends."""
    used: set[Node] = set()
    ahead = [model.graph.output_node()]
    while ahead:
        node = ahead.pop()
        if node not in used:
            used.add(node)
            ahead += node.all_input_nodes
    return used


def subgraphs(model: GraphModule) -> list[Subgraph]:
    """The operations of a model that graph mode knows, as far as its output depends on them."""
    used, covered = _used(model), set[Node]()
    fused = chains(model)
    parts: list[Subgraph] = []
    for node in model.graph.nodes:
        base = base_of(node, model) if node in used and node not in covered else ""
        if not base:
            continue
        chain = fused.get(node, [])
        nodes = tuple(part for part, _ in chain) or (node,)
        relu = None if chain and isinstance(chain[-1][1], ReLU) else relu_after(node, model, nodes[-1])
        nodes = nodes if relu is None else (*nodes, relu)
        covered.update(nodes)
        parts.append(Subgraph(base, nodes))
    return parts


def _is_same(a: str, b: str) -> bool:
    """Whether two bases compute the same, one as a module, function or method (`LeakyReLU`, `leaky_relu`)."""
    return a.replace("_", "").lower() == b.replace("_", "").lower()


def matching_subgraphs(model_a: GraphModule, model_b: GraphModule) -> dict[str, tuple[Subgraph, Subgraph]]:
    """Pairs of subgraphs that compute the same, by a name for each; `GraphMatchingException` if one has no match."""
    parts_a, parts_b = subgraphs(model_a), subgraphs(model_b)
    for a, b in zip(parts_a, parts_b, strict=False):
        if not _is_same(a.base, b.base):
            raise GraphMatchingException(
                f"the models do not match: {a.start.name} of the first one computes {a.base}, and {b.start.name} of "
                f"the second one, which stands at its place, {b.base}"
            )
    if len(parts_a) != len(parts_b):
        longer = max(parts_a, parts_b, key=len)
        place = longer[min(len(parts_a), len(parts_b))]
        raise GraphMatchingException(
            f"the models do not match: the first one has {len(parts_a)} operations and the second one {len(parts_b)}; "
            f"{place.start.name} ({place.base}) is only in one of them"
        )
    pairs = zip(parts_a, parts_b, strict=True)
    return {f"base_op_{a.base}_{at}": (a, b) for at, (a, b) in enumerate(pairs)}
