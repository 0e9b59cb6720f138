"""Types of parts of results, from the types of the results."""

from __future__ import annotations

import operator
import typing

from weft._base.types import Annotation, Arg
from weft.errors import PreconditionError
from weft.fx.graph import Graph
from weft.fx.node import Node


def annotate_getitem_nodes(graph: Graph) -> None:
    """Set the types of nodes that take a part of a result which has a type: a tuple, list or named tuple.

    Raises `AssertionError` if a tuple has no such part.
    """
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        whole, index = node.args
        part = _part_type(whole.type, index) if isinstance(whole, Node) else None
        node.type = node.type if part is None else part


def _part_type(kind: Annotation, index: Arg) -> Annotation:
    """The type of a part of a sequence of a type, or None if it is not known."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return parts[0]
    if typing.get_origin(kind) is tuple:
        if parts[1:] != (...,) and index >= len(parts):
            raise PreconditionError(f"annotate_getitem_nodes: a result of type {kind} has no part {index}")
        return parts[0] if parts[1:] == (...,) else parts[index]
    fields = getattr(kind, "_fields", None)
    return typing.get_type_hints(kind).get(fields[index]) if fields else None
