"""Modules made of a graph, which there are none of here."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.fx._absent import refuse
from weft.nn._module import Module


class GraphModule(Module):
    """Would be a module that runs a graph. Making one raises `NotImplementedError`, and no module is an instance."""

    def __init__(self, root: Any, graph: Any, class_name: str = "GraphModule") -> None:
        raise refuse("GraphModule")


_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """Would be what a pickled `GraphModule` is read into."""

    def __init__(self, body: Any) -> None:
        raise refuse("GraphModule")


def _copy_attr(from_module: Module, to_module: Module, target: str) -> NoReturn:
    raise refuse("GraphModule")
