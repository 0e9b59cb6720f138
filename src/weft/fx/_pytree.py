"""Trees, under the import path that `fx` has for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from weft._base.guards import is_list
from weft._base.types import PyTree
from weft.errors import ValueRangeError
from weft.fx.node import Node
from weft.utils._pytree import BUILTIN_TYPES, STANDARD_DICT_TYPES, LeafSpec, TreeSpec
from weft.utils._pytree import tree_flatten as tree_flatten
from weft.utils._pytree import tree_map as tree_map
from weft.utils._pytree import tree_unflatten as tree_unflatten

FlattenFnSpec = Callable[[Any, TreeSpec], list[Any]]

# no cell: only a tracer reads it
_FLATTEN: dict[Any, FlattenFnSpec] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: FlattenFnSpec,
    flatten_fn_exact_match_spec: Callable[[Any, TreeSpec], bool] | None = None,
) -> None:
    """Let `flatten_fn_spec(object, spec)` give the parts of objects of a type, also where they are proxies.

    The last argument is accepted, and changes nothing: the number of parts is always checked.
    """
    del flatten_fn_exact_match_spec
    _FLATTEN[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: PyTree, spec: TreeSpec) -> list[PyTree]:
    """The parts of a tree that stand where `spec` has leaves; `ValueError` if the tree is not like it."""
    if spec.is_leaf():
        return [pytree]
    try:
        parts = list(zip(_parts_of(pytree, spec), spec.children(), strict=True))
    except ValueError as error:
        raise ValueRangeError(f"the arguments are not nested as those that the graph was made for: {error}") from error
    return [leaf for part, child in parts for leaf in tree_flatten_spec(part, child)]


def _parts_of(pytree: PyTree, spec: TreeSpec) -> list[PyTree]:
    kind = spec.type
    if kind in _FLATTEN:
        return _FLATTEN[kind](pytree, spec)
    if kind in BUILTIN_TYPES and isinstance(getattr(pytree, "node", None), Node):  # a proxy, which does not know
        keys: Any = range(spec.num_children)
        if kind in STANDARD_DICT_TYPES:
            keys = spec.context[1] if kind is defaultdict else spec.context
        return [pytree[key] for key in keys]
    if kind is tuple and is_list(pytree):
        pytree = tuple(pytree)
    return TreeSpec(kind, spec.context, [LeafSpec() for _ in spec.children()]).flatten_up_to(pytree)
