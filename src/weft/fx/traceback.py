"""What is noted about the nodes that are made while another graph is run, or by parts of a program."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from weft._base.types import AttributeValue, Kwargs
from weft.fx._provenance import NodeSource as NodeSource
from weft.fx._provenance import NodeSourceAction as NodeSourceAction
from weft.fx._provenance import get_graph_provenance_json as get_graph_provenance_json
from weft.fx.node import Node

P = ParamSpec("P")
R = TypeVar("R")

# no cell: set only while a program is traced
_preserving: ContextVar[bool] = ContextVar("weft_fx_preserving", default=False)
# no cell: set only while a program is traced
_current: ContextVar[dict[str, Any]] = ContextVar("weft_fx_meta", default={})  # noqa: B039  never written to
# no cell: set only while a program is traced
_replayed: ContextVar[Node | None] = ContextVar("weft_fx_replayed", default=None)


@contextmanager
def _using(variable: ContextVar[Any], value: AttributeValue) -> Generator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def preserve_node_meta(enable: bool = True) -> Generator[None]:
    """A block in which new nodes get the `meta` of the node of another graph that an `Interpreter` runs.

    They also get what `annotate` says.
    """
    with _using(_preserving, enable), _using(_current, _current.get()):
        yield


def has_preserved_node_meta() -> bool:
    """Whether such a block is open."""
    return _preserving.get()


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Generator[None]:
    """A block in which `node` is run. New nodes note in `meta["from_node"]` that they come from it."""
    current = _current.get()
    if has_preserved_node_meta() and node.meta:
        current = {**current, **node.meta, "from_node": [NodeSource(node, pass_name, NodeSourceAction.CREATE)]}
    with _using(_current, current):
        yield


def get_current_meta() -> Kwargs:
    """A copy of what is noted about the node that is run."""
    return dict(_current.get())


def meta_of_new_node() -> Kwargs:
    """What a node that is made now gets noted, in a block of `preserve_node_meta`."""
    meta = get_current_meta()
    if (replayed := get_current_replay_node()) is not None:
        meta["is_functional_regenerated"] = True
        meta.update({key: replayed.meta[key] for key in ("custom", "stack_trace") if key in replayed.meta})
    return meta


@contextmanager
def annotate(annotation_dict: Kwargs) -> Generator[None]:
    """A block whose nodes have these entries in `meta["custom"]`, if they are made under `preserve_node_meta`.

    Blocks may be nested: the inner one adds to the entries of the outer one, or replaces them.
    """
    current = _current.get()
    with _using(_current, {**current, "custom": {**current.get("custom", {}), **annotation_dict}}):
        yield


def annotate_fn(annotation_dict: Kwargs) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: all calls of the function are such a block."""

    def decorator(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorator


@contextmanager
def set_current_replay_node(node: Node | None) -> Generator[None]:
    """A block that computes a node again: new nodes get its annotations and stack trace under `preserve_node_meta`."""
    with _using(_replayed, node):
        yield


def get_current_replay_node() -> Node | None:
    """The node that is computed again, or None."""
    return _replayed.get()


def set_stack_trace(stack: list[str]) -> None:
    """Let nodes that are made from now on have this stack trace, until the block of `preserve_node_meta` ends."""
    if has_preserved_node_meta():
        others = {key: value for key, value in _current.get().items() if key != "stack_trace"}
        _current.set({**others, "stack_trace": "".join(stack)} if stack else others)


def format_stack() -> list[str]:
    """The stack trace of the node that is run, or that of the caller."""
    if has_preserved_node_meta():
        return [_current.get().get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])
