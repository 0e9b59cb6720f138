"""What classes and functions that would trace a program raise."""

from __future__ import annotations

from typing import Any

from weft.errors import UnsupportedCallError


def refuse(name: str) -> UnsupportedCallError:
    """The error for a use of this name, which says what to do instead."""
    return UnsupportedCallError(
        f"fx.{name}: Weft does not rewrite programs node by node. For a program that runs without its Python code use "
        "torch.export.export or torch.jit.trace; for a graph to look at, export(...).graph; for the results of layers "
        "within a model, Module.register_forward_hook; to compile a function, torch.compile"
    )


class Absent:
    """A class of `fx` that can be named and derived from, and raises when an object of it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise refuse(next(kind.__name__ for kind in type(self).__mro__ if kind.__module__.startswith("weft.fx")))
