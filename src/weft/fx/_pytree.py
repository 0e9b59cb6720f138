"""Trees, under the import path that `fx` has for them."""

from __future__ import annotations

from typing import Any

from weft.errors import ValueRangeError
from weft.utils._pytree import TreeSpec
from weft.utils._pytree import tree_flatten as tree_flatten
from weft.utils._pytree import tree_map as tree_map
from weft.utils._pytree import tree_unflatten as tree_unflatten


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The parts of a tree that stand where `spec` has leaves; `ValueError` if the tree is not like it."""
    if spec.type is tuple and isinstance(pytree, list):
        pytree = tuple(pytree)
    try:
        return spec.flatten_up_to(pytree)
    except ValueError as error:
        raise ValueRangeError(f"the arguments are not nested as those that the graph was made for: {error}") from error
