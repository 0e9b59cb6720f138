"""Products with the same second factor as one product."""

from __future__ import annotations

import itertools
from operator import getitem

import weft
from weft._tensor.tensor import Tensor
from weft.fx._symbolic_trace import symbolic_trace
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes.tools_common import legalize_graph
from weft.fx.proxy import Proxy
from weft.nn._module import Module


def split_result_tensors(result: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """The rows of a product of concatenated matrices, apart: as many for each as it has."""
    is_traced = isinstance(result, Proxy)  # so that the numbers of rows are not known
    return weft.split(result, [0 if is_traced else x.shape[0] for x in inputs])


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether node `a` reads from `b`, directly or through others; True if a path is longer than `search_depth`."""
    if a is b:
        return True
    if not a.all_input_nodes:
        return False
    return search_depth == 0 or any(may_depend_on(source, b, search_depth - 1) for source in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of the nodes reads from another one, as far as `may_depend_on` can tell."""
    return not any(may_depend_on(a, b) or may_depend_on(b, a) for a, b in itertools.combinations(nodes, 2))


def merge_matmul(in_mod: Module) -> GraphModule:
    """The module with calls of `torch.matmul` that have the same second factor made one, where none needs another one.

    The first factors are matrices, or batches of them; they are concatenated, and the product is split. An attribute
    that is read at several places is one factor.
    """
    gm = symbolic_trace(in_mod)
    by_factor: dict[object, list[Node]] = {}
    for node in gm.graph.find_nodes(op="call_function", target=weft.matmul):
        if len(node.args) == 2 and all(isinstance(arg, Node) for arg in node.args):
            factor = node.args[1]
            by_factor.setdefault(factor.target if factor.op == "get_attr" else factor, []).append(node)
    for products in by_factor.values():
        if len(products) > 1 and are_nodes_independent(products):
            _merge(gm, products)
    gm.recompile()
    gm.graph.lint()
    return gm


def _merge(gm: GraphModule, products: list[Node]) -> None:
    """Replace products by parts of one."""
    graph = gm.graph
    rows = [node.args[0] for node in products]
    merged = graph.call_function(weft.matmul, (graph.call_function(weft.cat, (rows,)), products[0].args[1]))
    parts = graph.call_function(split_result_tensors, (merged, rows))
    for at, node in enumerate(products):
        node.replace_all_uses_with(graph.call_function(getitem, (parts, at)))
        graph.erase_node(node)
    legalize_graph(gm)
