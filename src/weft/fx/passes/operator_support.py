"""Which nodes a backend can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from weft._base.dtype import DType
from weft.errors import NotDefinedError
from weft.fx.node import Node
from weft.fx.passes.shape_prop import TensorMetadata
from weft.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target
from weft.nn._module import Module

TargetTypeName: TypeAlias = str
SupportedArgumentDTypes: TypeAlias = tuple[Sequence[Sequence[DType] | None], Mapping[str, Sequence[DType]]] | None
SupportDict: TypeAlias = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported: TypeAlias = Callable[[Mapping[str, Module], Node], bool]


class OperatorSupportBase(ABC):
    """Says which nodes are supported."""

    @abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether a node is. `submodules` are those of its graph's module by path, as in `named_modules()`."""
        raise NotDefinedError(f"{type(self).__name__} must define is_node_supported(submodules, node)")


class OperatorSupport(OperatorSupportBase):
    """Supports the calls of a table, and everything that is no call.

    `support_dict` has the names that `get_node_target` gives. The value is None if all arguments are supported, or a
    pair: for each positional argument the dtypes that it may have, or None for any, and the same for arguments by
    keyword. Dtypes are known after `ShapeProp`.
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether the table has what the node calls, for arguments of these dtypes."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        supported = self._support_dict[target]
        if supported is None:
            return True
        positional, by_keyword = supported
        pairs = [*zip(node.args, positional, strict=False)]
        pairs += [(node.kwargs[name], dtypes) for name, dtypes in by_keyword.items() if name in node.kwargs]
        return all(
            dtypes is None or not isinstance(arg, Node) or _dtype_or_type(arg) in dtypes for arg, dtypes in pairs
        )


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Support that a function decides."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what all of these support."""
    return create_op_support(lambda modules, node: all(x.is_node_supported(modules, node) for x in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what one of these supports."""
    return create_op_support(lambda modules, node: any(x.is_node_supported(modules, node) for x in op_support))


class OpSupports:
    """Support for everything but some nodes, to be combined by `chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: DType) -> OperatorSupportBase:
        """Without nodes that have an input of this dtype, as `ShapeProp` has found."""
        return create_op_support(lambda _, node: all(_dtype_or_type(x) != dtype for x in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Without the nodes of these names."""
        return create_op_support(lambda _, node: node.name not in disallow_set)


def _dtype_or_type(node: Node) -> object:
    """The dtype of a node's result; its Python type if it is no tensor."""
    meta = node.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else node.meta["type"]
