"""Proxies: values that note, in a graph, what a program does with them."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import operator
import sys
import traceback
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import weft
from weft._base.call_site import unpacked_count
from weft._base.guards import is_dict, is_list, is_slice, is_tuple
from weft._base.types import Annotation, AnyCallable, Arg, Args, Kwargs, PyTree
from weft._tensor.overriding import flat
from weft.errors import OutOfRangeError, UnsupportedCallError, ValueRangeError
from weft.fx import traceback as fx_traceback
from weft.fx._names import method_name, node_name
from weft.fx._scope import Scope as Scope
from weft.fx._scope import ScopeContextManager as ScopeContextManager
from weft.fx.graph import Graph
from weft.fx.node import Argument, Node, Target, base_types, map_aggregate
from weft.fx.operator_schemas import check_for_mutable_operation
from weft.overrides import is_tensor_method_or_property
from weft.utils._pytree import is_namedtuple_instance

if TYPE_CHECKING:
    from weft.nn._parameter import Parameter

_NOT_THE_PROGRAM = (str(weft.__path__[0]), "<weft")


class TraceError(ValueRangeError):
    """A program does with a proxy what cannot be written down in a graph."""


class TracerBase:
    """Makes nodes and proxies. `Tracer` traces whole modules; this part is enough to extend a graph.

    graph                     the graph that nodes are added to
    record_stack_traces       whether nodes note the lines of the program that they come from (`Node.stack_trace`)
    check_mutable_operations  whether functions that write to an argument are refused, with `RuntimeError`
    proxy_buffer_attributes   whether buffers that the program reads are proxies at once, as parameters are
    """

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"
    _outermost: FrameType | None = None  # the frame that runs the program, while it is traced

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Annotation = None,
    ) -> Node:
        """Add a node to the graph. Subclasses may check or change what is added."""
        if self.check_mutable_operations and kind == "call_function" and callable(target):
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if fx_traceback.has_preserved_node_meta():
            node.meta.update(fx_traceback.meta_of_new_node())
        if self.record_stack_traces and not node.stack_trace and (lines := _stack_trace(self._outermost)):
            node.stack_trace = lines
        return node

    def proxy(self, node: Node) -> Proxy:
        """A proxy for a node. Subclasses may return one of another class."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: Args,
        kwargs: Kwargs,
        name: str | None = None,
        type_expr: Annotation = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a node whose arguments may contain proxies, and return a proxy for it."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: PyTree) -> Argument:
        """What stands for an object among the arguments of a node. Subclasses may take further types.

        Raises `NotImplementedError` for objects that generated code could not contain.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a.__class__, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if is_tuple(a):
            parts = [self.create_arg(part) for part in a]
            return type(a)(*parts) if is_namedtuple_instance(a) else tuple(parts)
        if is_list(a):
            return [self.create_arg(part) for part in a]
        if is_dict(a):
            return {_key(self.create_arg(key)): self.create_arg(x) for key, x in a.items()}
        if is_slice(a):
            return slice(*[self.create_arg(part) for part in (a.start, a.stop, a.step)])
        if isinstance(a, range):
            parts = [self.create_arg(part) for part in (a.start, a.stop, a.step)]
            return range(*parts)
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise UnsupportedCallError(
            f"argument of type: {type(a)}: it cannot be an argument in a graph, which takes tensors, numbers, texts, "
            "dtypes, devices, and tuples, lists, dicts and slices of them. Override Tracer.create_arg for others"
        )

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a proxy, which is not known. Subclasses may return one."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow: the value of "
            f"'{obj.node.name}' is not known while a program is traced. Pass what decides as concrete_args, wrap the "
            "function that decides with torch.fx.wrap, or make its module a leaf (Tracer.is_leaf_module)"
        )

    def iter(self, obj: Proxy) -> Iterator[Proxy]:
        """The parts of a proxy, whose number is not known. Subclasses may return them."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            f"**kwargs function argument: the number of parts of '{obj.node.name}' is not known while a program is "
            "traced. Unpack it into variables (a, b = x), or take parts by index"
        )

    def keys(self, obj: Proxy) -> Proxy:
        """What `**proxy` and `proxy.keys()` give: a call in the graph."""
        return Attribute(obj, "keys")()


def _key(key: object) -> Hashable:
    if isinstance(key, Node) or (is_tuple(key) and any(isinstance(part, Node) for part in key)):
        raise OutOfRangeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")
    return key


def _stack_trace(outermost: FrameType | None) -> str:
    """The frames within `outermost`, or all, without those of this package."""
    within = itertools.takewhile(lambda entry: entry[0] is not outermost, traceback.walk_stack(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
    lines = [line for line in traceback.StackSummary.extract(within) if not line.filename.startswith(_NOT_THE_PROGRAM)]
    return "".join(traceback.format_list(lines[::-1])).strip()


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that exists already: `Proxy(node)` has such a tracer."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class Proxy:
    """Stands for the result of a node while a program runs: what is done with it becomes nodes of the graph.

    Operators, methods, attributes, and functions of this package can be applied to it. What needs a value (`if x:`,
    loops, `len`, `int`, `in`) raises. `Proxy(node)` lets one add to the graph of a node with Python's syntax.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.__dict__["tracer"] = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.__dict__["node"] = node

    node: Node
    tracer: TracerBase

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k.startswith("__") and k.endswith("__"):  # looked up by protocols, such as those of copying
            raise AttributeError(f"'Proxy' object has no attribute {k!r}")
        return Attribute(self, k)

    def __deepcopy__(self, memo: dict[int, object]) -> Proxy:
        return type(self)(self.node, self.tracer)

    def __call__(self, *args: Arg, **kwargs: Arg) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        count = unpacked_count(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        if count is not None:
            return iter([operator.getitem(cast("Any", self), at) for at in range(count)])
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Proxy:
        """What `**proxy` asks for."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise OutOfRangeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls,
        orig_method: AnyCallable,
        types: tuple[type, ...],
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> Proxy:
        """Note a call of a function of this package with a proxy among its arguments."""
        kwargs = kwargs or {}
        proxies = [x for x in flat(args, kwargs) if isinstance(x, Proxy)] or _proxies_within((args, kwargs))
        tracer = proxies[0].tracer
        if any(proxy.tracer is not tracer for proxy in proxies):
            raise OutOfRangeError(
                f"{orig_method.__name__}: proxies of two tracers meet, {proxies}; a graph has nodes of one"
            )
        if is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", method_name(orig_method), args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=node_name(orig_method))


def _proxies_within(a: PyTree) -> list[Proxy]:
    """The proxies among arguments, at any depth."""
    proxies: list[Proxy] = []
    map_aggregate(a, lambda x: proxies.append(x) if isinstance(x, Proxy) else None)
    return proxies


class Attribute(Proxy):
    """An attribute of a proxy. It becomes a node when it is used as a value; a call of it is that of a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.__dict__.update(root=root, attr=attr, tracer=root.tracer)

    root: Proxy
    attr: str

    @property
    def node(self) -> Node:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The node that reads the attribute."""
        own = self.__dict__
        if "_node" not in own:
            own["_node"] = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return own["_node"]

    def __call__(self, *args: Arg, **kwargs: Arg) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)

    def __deepcopy__(self, memo: dict[int, object]) -> Attribute:
        return Attribute(self.root, self.attr)


class ParameterProxy(Proxy):
    """A proxy of a parameter, of which the shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Parameter) -> None:
        super().__init__(node, tracer)
        self.__dict__.update(name=name, param=param)

    def __repr__(self) -> str:
        return f"ParameterProxy({self.__dict__['name']})"

    @property
    def shape(self) -> Proxy:
        """The sizes of the parameter."""
        return self.__dict__["param"].shape

    @property
    def ndim(self) -> int:
        """The number of dims of the parameter."""
        return self.__dict__["param"].ndim

    def size(self, *args: Arg) -> Proxy:
        """The sizes of the parameter, or that of one dim."""
        return self.__dict__["param"].size(*args)

    def dim(self) -> int:
        """The number of dims of the parameter."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements of the parameter."""
        return self.__dict__["param"].numel()

    def nelement(self) -> int:
        """The number of elements of the parameter."""
        return self.numel()


_UNARY_AND_COMPARISONS = ("eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "getitem")
_REFLECTABLE = (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and", "or", "xor", "matmul",
)  # fmt: skip


def _define_operators() -> None:
    """Give `Proxy` the special methods of operators, which note calls of the functions of the module `operator`."""

    def method(name: str, function: AnyCallable, *, reflected: bool = False) -> None:
        def special(self: Proxy, *operands: object) -> Proxy:
            args = (*operands, self) if reflected else (self, *operands)
            return self.tracer.create_proxy("call_function", function, args, {})

        special.__name__ = special.__qualname__ = name
        setattr(Proxy, name, special)

    for name in (*_UNARY_AND_COMPARISONS, *_REFLECTABLE):
        method(f"__{name}__", getattr(operator, f"__{name}__"))
    for name in _REFLECTABLE:
        method(f"__r{name}__", getattr(operator, f"__{name}__"), reflected=True)


_define_operators()
