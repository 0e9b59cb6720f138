"""The calls of public functions that a program makes, and the graph of `weft.fx` that makes them again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.layout import layout, memory_format
from weft._base.types import AnyCallable, Arg, Args, Kwargs
from weft._lazy.aval import Aval
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor
from weft.autograd.grad_mode import set_grad_enabled
from weft.fx._names import method_name
from weft.fx.graph import Graph
from weft.fx.node import Node, has_side_effect, map_aggregate

has_side_effect(set_grad_enabled)


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that existed before the calls: the n-th that they use."""

    number: int


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor in the result of the n-th call, or of a part of it: `path` are the indices that lead there."""

    call: int
    path: tuple[int, ...] = ()


class NotInGraphs(Exception):
    """An argument that no graph can hold."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call. Tensors among its arguments are `Input`s and `Result`s; `avals` are the types of those in its result."""

    function: AnyCallable
    args: Args
    kwargs: Kwargs
    avals: tuple[tuple[tuple[int, ...], Aval], ...]

    @property
    def key(self) -> Hashable:
        """What distinguishes it from other calls."""
        return self.function, _key(self.args), _key(self.kwargs)


_CONSTANTS = (int, bool, str, type(None), type(...), DType, device, memory_format, layout, type)


def referring(x: Arg, reference: Callable[[Tensor], Input | Result]) -> Arg:
    """An argument with references in place of its tensors; `NotInGraphs` if it holds anything but constants."""
    if isinstance(x, Tensor):
        return reference(x)
    kind: Any = type(x)
    if isinstance(x, (list, tuple)):
        parts = [referring(part, reference) for part in x]
        return parts if kind is list else kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
    if kind is dict:
        return {key: referring(part, reference) for key, part in x.items()}
    if kind is slice:
        return slice(*[referring(part, reference) for part in (x.start, x.stop, x.step)])
    if kind in _CONSTANTS or kind in (float, complex) or isinstance(x, type):
        return x
    raise NotInGraphs(f"an argument of type {kind.__name__}")


def _key(x: Arg) -> Hashable:
    if isinstance(x, (list, tuple)):
        return type(x), *map(_key, x)
    if isinstance(x, dict):
        return dict, *[(key, _key(part)) for key, part in x.items()]
    if isinstance(x, slice):
        return slice, _key(x.start), _key(x.stop), _key(x.step)
    if isinstance(x, (float, complex)):
        return type(x), repr(x)  # NaN equals itself here, and -0.0 is not 0.0
    return type(x), x


# --- the graph ----------------------------------------------------------------------------------------------------


def graph_of(calls: Sequence[Call], names: Sequence[str], types: Sequence[Aval], results: Iterable[Result]) -> Graph:
    """The graph of some calls, whose inputs have these names and types, and which returns a tuple of `results`.

    Calls that nobody uses are left out, unless they write to something.
    """
    graph = Graph()
    nodes: dict[Input | Result, Node] = {}
    for number, (name, aval) in enumerate(zip(names, types, strict=True)):
        node = nodes[Input(number)] = graph.create_node("placeholder", name, name=name.lower())
        node.type, node.meta["example_value"] = Tensor, _example(aval)

    def node_of(x: Arg) -> Arg:
        # A part of a result gets its nodes when it is first used, so that a graph takes apart only what it needs.
        if isinstance(x, Result) and x not in nodes:
            whole = node_of(Result(x.call, x.path[:-1]))
            nodes[x] = graph.call_function(operator.getitem, (whole, x.path[-1]))
            note(x)
        return nodes[x]

    def note(x: Result) -> None:
        for path, aval in calls[x.call].avals:
            if path == x.path:
                nodes[x].meta["example_value"] = _example(aval)

    def leaf(x: Arg) -> Arg:
        return node_of(x) if isinstance(x, (Input, Result)) else x

    for number, call in enumerate(calls):
        op, target, args = _as_node(call.function, call.args, call.kwargs)
        nodes[Result(number)] = graph.create_node(
            op, target, map_aggregate(args, leaf), map_aggregate(call.kwargs, leaf)
        )
        note(Result(number))
    graph.output(tuple([node_of(x) for x in results]))
    graph.eliminate_dead_code()
    return graph


def _example(aval: Aval) -> Tensor:
    return empty(tuple(aval.size), dtype=aval.dtype, device="meta")


_FUNCTIONS = {
    name: getattr(operator, target)
    for target, names in {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "div true_divide", "floordiv": "__floordiv__",
        "mod": "remainder __mod__", "pow": "pow __pow__", "matmul": "matmul", "and_": "__and__", "or_": "__or__",
        "xor": "__xor__", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "neg": "neg",
        "invert": "__invert__", "getitem": "__getitem__", "setitem": "__setitem__",
    }.items()
    for name in names.split()
}  # fmt: skip
"""The functions of Python's syntax that stand in graphs for calls of methods, as programs usually write them."""
_REFLECTED = {f"__r{name}__": getattr(operator, name) for name in ("sub", "truediv", "pow", "mod", "floordiv")}


def _as_node(function: Arg, args: Args, kwargs: Kwargs) -> tuple[str, Any, Args]:
    """The kind of a node that makes a call, its target and its arguments."""
    getter = getattr(function, "__self__", None)
    if isinstance(getter, property):
        return "call_function", getattr, (*args, getter.fget.__name__)  # pyright: ignore[reportOptionalMemberAccess]
    if not str(getattr(function, "__qualname__", "")).startswith("Tensor."):
        return "call_function", function, args
    name = method_name(function)
    if name in _FUNCTIONS and not kwargs:
        return "call_function", _FUNCTIONS[name], args
    if name in _REFLECTED:
        return "call_function", _REFLECTED[name], args[::-1]
    return "call_method", name, args
