"""Types of parts of results, from the types of the results."""

from __future__ import annotations

import operator
import typing
from typing import Any

from weft.fx.graph import Graph


def annotate_getitem_nodes(graph: Graph) -> None:
    """Set the types of nodes that take a part of a result which has a type: a tuple, list or named tuple.

    Raises `IndexError` if a tuple has no such part.
    """
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        whole, index = node.args
        part = _part_type(whole.type, index)
        node.type = node.type if part is None else part


def _part_type(kind: Any, index: Any) -> Any:
    """The type of a part of a sequence of a type, or None if it is not known."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return parts[0]
    if typing.get_origin(kind) is tuple:
        return parts[0] if parts[1:] == (...,) else parts[index]
    fields = getattr(kind, "_fields", None)
    return typing.get_type_hints(kind).get(fields[index]) if fields else None
