"""Shapes and types of all results of a graph, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft._base.dtype import DType
from weft._base.layout import channels_last, channels_last_3d, contiguous_format, memory_format
from weft._base.size import Size
from weft._base.types import Arg, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.fx.interpreter import Interpreter
from weft.fx.node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known of a tensor besides its elements."""

    shape: Size
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """The metadata of a tensor."""
    order = next((o for o in _ORDERS if include_contiguity and _is_contiguous(result, o)), None)
    stride = tuple(result.stride()) if include_contiguity else ()
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, stride, order, False, {})


_ORDERS = (contiguous_format, channels_last, channels_last_3d)


def _is_contiguous(tensor: Tensor, order: memory_format) -> bool:
    return tensor.is_contiguous(memory_format=order)


class ShapeProp(Interpreter):
    """Runs a graph and notes in `node.meta` what its results are: `"tensor_meta"` and `"type"`.

    `propagate(*args)` runs it. Tensors of the meta device give shapes without computing anything.
    """

    def run_node(self, n: Node) -> Result:
        """The result of a node, noted."""
        result = super().run_node(n)
        has_tensor = False

        def metadata(x: object) -> PyTree:
            nonlocal has_tensor
            if not isinstance(x, Tensor):
                return x
            has_tensor = True
            return _extract_tensor_metadata(x)

        meta = map_aggregate(result, metadata)
        if has_tensor:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Arg) -> Result:
        """Run the graph for these arguments, and return its result."""
        return super().run(*args)
