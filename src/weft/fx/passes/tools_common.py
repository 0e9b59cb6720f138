"""What passes share: kinds of nodes, names of what they call, and sorting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from weft._tensor.tensor import Tensor
from weft.errors import OutOfRangeError, PreconditionError, WeftError
from weft.fx._names import home_of, qualified_name
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.fx.passes._order import breadth_first_order, reorder, stable_order
from weft.nn._module import Module

Tensors: TypeAlias = tuple[Tensor] | list[Tensor]
TensorOrTensors: TypeAlias = Tensor | Tensors
NodeList: TypeAlias = list[Node]
NodeSet: TypeAlias = set[Node]
Names: TypeAlias = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """The name of what a node calls: of the function or method, or of the class of the module.

    `submodules` are by path. Names are PyTorch's: `torch.relu`, `torch.nn.modules.linear.Linear`.
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise PreconditionError(f"get_node_target: '{node}' must be a call ({', '.join(sorted(CALLABLE_NODE_OPS))}), "
                                f"and is of kind {node.op}")  # fmt: skip
    if node.op == "call_module":
        kind = type(submodules[node.target])
        return f"{home_of(kind)}.{kind.__name__}"
    return qualified_name(node.target) if node.op == "call_function" else node.target


def is_node_output_tensor(node: Node) -> bool:
    """Whether the result of a node is a tensor, as `ShapeProp` has found."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, Tensor)


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sort the nodes of a graph, each after its inputs, in the order in which they can be computed. Returns `gm`.

    Raises `RuntimeError` if there is a circle.
    """
    return _sorted(gm, breadth_first_order(gm.graph.nodes), OutOfRangeError)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the nodes of a graph, each after its inputs, and else as they were. Returns `gm`.

    Raises `AssertionError` if there is a circle.
    """
    return _sorted(gm, stable_order(gm.graph.nodes), PreconditionError)


def _sorted(gm: GraphModule, order: NodeList, error: type[WeftError]) -> GraphModule:
    ordered = set(order)
    if unordered := [node for node in gm.graph.nodes if node not in ordered]:
        raise error(f"Input graph has cycles, unable to add {unordered}")
    reorder(gm, order)
    return gm
