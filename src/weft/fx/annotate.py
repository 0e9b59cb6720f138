"""Types of values in a program that is traced."""

from __future__ import annotations

from typing import TypeVar

from weft.errors import OutOfRangeError
from weft.fx.proxy import Proxy

T = TypeVar("T")


def annotate(val: T, type: object) -> T:
    """Give the node of a proxy a type; other values are left alone. Returns `val`.

    Raises `RuntimeError` if the node has a type already: that of a parameter is written in the head of the function.
    """
    if isinstance(val, Proxy):
        if val.node.type:
            raise OutOfRangeError(
                f"annotate: '{val.node.name}' already has the type {val.node.type}, got {type}; annotate a value once, "
                "and a parameter in the head of its function"
            )
        val.node.type = type
    return val
