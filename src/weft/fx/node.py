"""Nodes: the lines of a graph."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from weft._assertions import _assert, _assert_async
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.guards import is_dict, is_list, is_list_or_tuple, is_slice, is_tuple
from weft._base.layout import layout, memory_format
from weft._base.types import Annotation, AnyCallable, Arg, Args, Kwargs
from weft._interop.operators import Tag
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.fx import _names
from weft.fx.immutable_collections import immutable_dict, immutable_list
from weft.fx.operator_schemas import ArgsKwargsPair, is_in_place_name, normalize_function, normalize_module
from weft.nn._conv import _ConvNd
from weft.nn._linear import Linear
from weft.nn._norm import _Affine
from weft.utils._pytree import is_namedtuple_instance

if TYPE_CHECKING:
    from weft.nn._module import Module

Target: TypeAlias = Callable[..., Any] | str
"""What a node calls: a function, or the name of a method or module; or what it reads."""
Argument: TypeAlias = Any
"""An argument of a node: a node, a value of `base_types`, or tuples, lists, dicts and slices of arguments."""

BaseArgumentTypes = str | int | float | bool | complex | DType | Tensor | device | memory_format | layout
base_types = (str, int, float, bool, complex, DType, Tensor, device, memory_format, layout)
OPCODES = frozenset({"placeholder", "get_attr", "call_function", "call_module", "call_method", "output"})

F = TypeVar("F", bound=Callable[..., Any])

_LAYERS_WITH_NEW_RESULTS = (_ConvNd, Linear, _Affine)
# no cell: only a tracer reads it
_SIDE_EFFECTS: set[Any] = {_assert, _assert_async, operator.setitem, setattr, print}


def has_side_effect(fn: F) -> F:
    """Let `Graph.eliminate_dead_code` keep the calls of a function, also if nobody uses their results. A decorator."""
    _SIDE_EFFECTS.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`a` with `fn(x)` for everything in its tuples, lists, dicts and slices that is none of these."""
    if is_tuple(a):
        parts = [map_aggregate(x, fn) for x in a]
        return type(a)(*parts) if is_namedtuple_instance(a) else tuple(parts)
    if is_list(a):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if is_dict(a):
        return immutable_dict({key: map_aggregate(x, fn) for key, x in a.items()})
    if is_slice(a):
        return slice(*[map_aggregate(x, fn) for x in (a.start, a.stop, a.step)])
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with `fn(node)` in place of every node in its tuples, lists, dicts and slices."""
    if not callable(fn):
        raise PreconditionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """A line of a graph: an input, the use of an attribute, a call, or the output.

    op       "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output"
    name     unique in the graph; the variable that the generated code assigns
    target   the name of the input or the path of the attribute or module; the function; the name of the method
    args     positional arguments, in which nodes stand for their results; a method's first is the object.
             Those of the output are one: what is returned
    kwargs   arguments by keyword
    users    the nodes that have this one among their arguments, as keys
    type     an annotation, or None
    meta     whatever passes over the graph note

    A node is made by the methods of `Graph`, and belongs to one graph.
    """

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Annotation = None,
    ) -> None:
        if op not in OPCODES:
            raise PreconditionError(f"op '{op}' is not in _legal_ops: it must be one of {', '.join(sorted(OPCODES))}")
        is_function = op == "call_function"
        if not (callable(target) if is_function else isinstance(target, str)):
            wanted = "a Callable" if is_function else "a str"
            raise ValueRangeError(
                f"Node '{name}' ({op}): target {target!r} has type {type(target)} but {wanted} is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target: Any = target
        self.users: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Arg] = {}
        self._prev = self._next = self
        self._erased = False
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._set_arguments(args, kwargs)

    def __repr__(self) -> str:
        return self.name

    # --- arguments --------------------------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments. Assign a tuple to replace them."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by keyword. Assign a dict to replace them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    def _set_arguments(self, args: Args, kwargs: Kwargs) -> None:
        if not is_list_or_tuple(args):
            raise PreconditionError(f"Node '{self.name}': expected args to be a tuple, got {type(args)}")
        if not is_dict(kwargs):
            raise PreconditionError(f"Node '{self.name}': expected kwargs to be a dict, got {type(kwargs)}")
        inputs: dict[Node, None] = {}
        new_args, new_kwargs = map_arg((tuple(args), kwargs), lambda node: inputs.setdefault(node) or node)
        for node in self._input_nodes:
            node.users.pop(self, None)
        for node in inputs:
            node.users.setdefault(self)
        self._args, self._kwargs, self._input_nodes = new_args, new_kwargs, inputs

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace the positional argument at `idx`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before the one at `idx`, or after the last if `idx` is their number."""
        if not 0 <= idx <= len(self.args):
            raise PreconditionError(f"insert_arg: index must be between 0 and {len(self.args)}, got {idx}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace or add an argument by keyword."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replace one node by another, wherever it is among the arguments."""
        self._set_arguments(*map_arg((self.args, self.kwargs), lambda n: new_input if n is old_input else n))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let all nodes that use this one use another; returns these nodes.

        Users for which `delete_user_cb` is False stay. With `propagate_meta` the other node, whose `meta` must be
        empty, gets that of this one.
        """
        if propagate_meta:
            if replace_with.meta:
                raise PreconditionError(
                    f"replace_all_uses_with(propagate_meta=True): '{replace_with}' must have an empty meta"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def normalized_arguments(
        self,
        root: Module | None,
        arg_types: object = None,
        kwarg_types: object = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """The arguments as the signature of the function or module orders them; None for other nodes."""
        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    # --- position ---------------------------------------------------------------------------------------------

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    def prepend(self, x: Node) -> None:
        """Move `x`, of the same graph, before this node."""
        if x.graph is not self.graph:
            raise PreconditionError("Attempting to move a Node into a different Graph")
        if x is not self:
            x.unlink()
            before = self._prev
            before._next = self._prev = x
            x._prev, x._next = before, self

    def append(self, x: Node) -> None:
        """Move `x`, of the same graph, after this node."""
        if x is not self:
            self._next.prepend(x)

    def unlink(self) -> None:
        """Take the node out of the order of its graph."""
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def __gt__(self, other: Node) -> bool:
        return self._position() > other._position()

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    def _position(self) -> int:
        return next(at for at, node in enumerate(self.graph.nodes) if node is self)

    # --- to look at -------------------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where the program made this node, as tracers with `record_stack_traces` note it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def _rename(self, candidate: str) -> None:
        """Take another name, or one like it."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than compute its result, so that it is kept although nobody uses that.

        So are inputs and the output, functions of `has_side_effect` and assertions, functions and methods that write to
        an argument (their names end with `_`, or they have `out=` or `inplace=True`), and modules with an attribute
        `_is_impure`; with `impure_random` also custom operators with the tag `nondeterministic_seeded`. What is written
        in place to the result of a convolution, linear or normalizing layer, which nobody else uses, is no such thing.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            is_random = impure_random and Tag.nondeterministic_seeded in getattr(self.target, "tags", ())
            return self.target in _SIDE_EFFECTS or is_random or self._is_seen_to_write()
        if self.op == "call_method":
            return self._is_seen_to_write()
        if self.op == "call_module":
            root = self.graph.owning_module
            if root is None:
                raise PreconditionError("self.graph.owning_module not set for purity check")
            return getattr(root.get_submodule(self.target), "_is_impure", False)
        return False

    def _is_seen_to_write(self) -> bool:
        """Whether the call of a function or method writes to an argument that anybody else may read."""
        has_out = self.op == "call_function" and self.kwargs.get("out") is not None
        return has_out or (self._is_in_place() and not self._has_written_alone())

    def _is_in_place(self) -> bool:
        """Whether the call of a function or method writes to its first argument."""
        name = self.target if self.op == "call_method" else getattr(self.target, "__name__", "")
        return is_in_place_name(name) or (self.op == "call_function" and self.kwargs.get("inplace") is True)

    def _has_written_alone(self) -> bool:
        """Whether what is written to is the new tensor of a layer, of which this node is the only user."""
        written = self.args[0] if self.args else None
        if not isinstance(written, Node) or len(written.users) > 1:
            return False
        if written.op == "call_module" and self.graph.owning_module is not None:
            return isinstance(self.graph.owning_module.get_submodule(written.target), _LAYERS_WITH_NEW_RESULTS)
        is_call = written.op in ("call_function", "call_method")
        return is_call and written._is_in_place() and written._has_written_alone()

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The line that a graph prints for this node.

        The text of a placeholder is also appended to `placeholder_names`, and the annotation of the output to
        `maybe_return_typename`. `include_tensor_metadata` adds what `ShapeProp` has found.
        """
        annotation = "" if self.type is None else f"{_names.type_text(self.type)} "
        own = f"%{self.name} : {annotation}[num_users={len(self.users)}]"
        if include_tensor_metadata and (meta := self.meta.get("tensor_meta")) is not None:
            own += f" [{getattr(meta, 'dtype', '')}{list(getattr(meta, 'shape', ()))}]"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target} : {annotation}".removesuffix(" : ").rstrip())
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{own} = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{own} = get_attr[target={self.target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename.append(f" -> {_names.type_text(self.type)}")
            return f"return {self.args[0]}"
        arguments = f"(args = {argument_text(self.args)}, kwargs = {argument_text(self.kwargs)})"
        return f"{own} = {self.op}[target={_names.target_text(self.target)}]{arguments}"


def argument_text(argument: Argument, max_list_len: int | None = None) -> str:
    """An argument as graphs print it, with `%name` for nodes; of longer lists and tuples only the first parts."""
    if isinstance(argument, Node):
        return f"%{argument.name}"
    if (own := getattr(argument, "_custom_fx_repr_fn", None)) is not None:
        return own()
    if is_tuple(argument) and not is_namedtuple_instance(argument):
        return f"({_parts_text(argument, max_list_len)}{',' if len(argument) == 1 else ''})"
    if is_list(argument):
        return f"[{_parts_text(argument, max_list_len)}]"
    if is_dict(argument):
        return "{" + ", ".join([f"{key}: {argument_text(x)}" for key, x in argument.items()]) + "}"
    if is_slice(argument):
        return f"slice({', '.join(map(argument_text, (argument.start, argument.stop, argument.step)))})"
    return str(argument)


def _parts_text(parts: Sequence[Argument], most: int | None) -> str:
    rest = "" if most is None or len(parts) <= most else f", ...[total_len={len(parts)}]"
    return ", ".join(map(argument_text, parts[:most])) + rest


def _get_qualified_name(func: AnyCallable) -> str:  # pyright: ignore[reportUnusedFunction]  users import PyTorch's name
    return _names.qualified_name(func)


def _format_arg(arg: object, max_list_len: float = math.inf) -> str:  # pyright: ignore[reportUnusedFunction]  users import PyTorch's name
    return argument_text(arg, None if max_list_len == math.inf else int(max_list_len))


def _type_repr(obj: object) -> str:  # pyright: ignore[reportUnusedFunction]  users import PyTorch's name
    return _names.type_text(obj)
