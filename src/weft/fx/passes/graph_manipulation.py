"""Exchanging what nodes call, and how many bytes they take."""

from __future__ import annotations

from typing import NamedTuple

from weft._tensor.tensor import Tensor
from weft.errors import OutOfRangeError
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, Target
from weft.fx.passes.shape_prop import ShapeProp, TensorMetadata


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of that and its parameters."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Let all nodes of one kind and target be of another kind and target, with the same arguments."""
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            node.op, node.target = new_op, new_target
    fx_module.recompile()


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Tensor] | None = None) -> None:
    """Set `node.size_bytes` of all nodes but the output. With `args`, `ShapeProp` is run for them first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op != "output":
            setattr(node, "size_bytes", get_size_of_node(fx_module, node))  # noqa: B010  no attribute of all nodes


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What `ShapeProp` has found; `RuntimeError` if there is nothing."""
    if not (meta := node.meta.get("tensor_meta")):
        raise OutOfRangeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run, and that "
            "the result is a tensor"
        )
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The bytes of a node's result, and of that and the parameters of the module that it calls, in elements of it."""
    meta = get_tensor_meta(node)
    elements = meta.shape.numel()
    parameters = fx_module.get_submodule(node.target).parameters() if node.op == "call_module" else ()
    total = elements + sum([parameter.numel() for parameter in parameters])
    return size_bytes(elements * meta.dtype.itemsize, total * meta.dtype.itemsize)
