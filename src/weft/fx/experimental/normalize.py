"""One form for calls that programs write in several ways."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import weft
from weft._base.types import Kwargs, Result
from weft.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from weft.fx.graph_module import GraphModule
from weft.fx.interpreter import Transformer
from weft.fx.node import Argument, Node, Target
from weft.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module
from weft.fx.proxy import Proxy


class NormalizeArgs(Transformer):
    """Writes arguments of functions and layers by keyword, in the order of their signature, with all defaults.

    Without `normalize_to_only_use_kwargs`, positional ones stay positional. Calls whose signature is not known, or has
    `*args`, stay as they are. New nodes have the `meta` and `type` of the old ones; `node_map` has the old node of each
    proxy.
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Result:
        """The proxy for a node."""
        result = super().run_node(n)
        if n.op != "output":
            self.node_map[result] = n
            result.node.meta, result.node.type = n.meta, n.type
        return result

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """A call of a function."""
        if isinstance(target, str):
            return super().call_function(target, args, kwargs)
        pair = normalize_function(target, args, kwargs, None, None, self.normalize_to_only_use_kwargs)
        return super().call_function(target, *(pair or ArgsKwargsPair(args, kwargs)))

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """A call of a module."""
        pair = normalize_module(self.module, str(target), args, kwargs, self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(pair or ArgsKwargsPair(args, kwargs)))


class NormalizeOperators(AnnotateTypesWithSchema):
    """Writes functions of two tensors as operators: `torch.add(x, y)` as `x + y`. Also sets the types of nodes.

    Calls that have more arguments, or some by keyword, stay as they are.
    """

    binary_magic_method_remap: ClassVar[dict[Callable[..., Any], Callable[[Any, Any], Any]]] = {
        weft.add: operator.add,
        weft.mul: operator.mul,
        weft.sub: operator.sub,
        weft.div: operator.truediv,  # pyright: ignore[reportUnknownMemberType]  of anything
        weft.floor_divide: operator.floordiv,  # pyright: ignore[reportUnknownMemberType]  of anything
        weft.remainder: operator.mod,
        weft.eq: operator.eq,
        weft.ne: operator.ne,
        weft.lt: operator.lt,
        weft.le: operator.le,
        weft.gt: operator.gt,
        weft.ge: operator.ge,
    }

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """A call of a function or operator."""
        if not isinstance(target, str) and len(args) == 2 and not kwargs:
            target = self.binary_magic_method_remap.get(target, target)
        return super().call_function(target, args, kwargs)
