"""Nodes of exported graphs, under PyTorch's import path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from weft.export._graph import Node as Node
from weft.utils._pytree import tree_map_only

Target: TypeAlias = Callable[..., Any] | str
"""What a node calls."""
Argument: TypeAlias = Any
"""An argument of a node."""

F = TypeVar("F", bound=Callable[..., Any])


def has_side_effect(fn: F) -> F:
    """The function itself: exported programs keep whatever they have recorded."""
    return fn


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with `fn(node)` in place of every node in its tuples, lists and dicts."""
    return tree_map_only(Node, fn, a)
