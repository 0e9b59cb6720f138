"""What is noted about the nodes that are made while another graph is run: where they come from."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from weft.fx.node import Node

_preserving: ContextVar[bool] = ContextVar("weft_fx_preserving", default=False)
_current: ContextVar[dict[str, Any]] = ContextVar("weft_fx_meta", default={})  # noqa: B039  never written to


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A block in which new nodes get the `meta` of the node of another graph that an `Interpreter` runs."""
    token = _preserving.set(enable)
    try:
        yield
    finally:
        _preserving.reset(token)


def has_preserved_node_meta() -> bool:
    """Whether such a block is open."""
    return _preserving.get()


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """A block in which `node` is run."""
    del pass_name
    token = _current.set({**_current.get(), **node.meta} if has_preserved_node_meta() else _current.get())
    try:
        yield
    finally:
        _current.reset(token)


def get_current_meta() -> dict[str, Any]:
    """A copy of what is noted about the node that is run."""
    return dict(_current.get())


def set_stack_trace(stack: list[str]) -> None:
    """Let nodes that are made from now on have this stack trace, in a block of `preserve_node_meta`."""
    if has_preserved_node_meta() and stack:
        _current.set({**_current.get(), "stack_trace": "".join(stack)})


def format_stack() -> list[str]:
    """The stack trace of the node that is run, or that of the caller."""
    if has_preserved_node_meta():
        return [_current.get().get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])
