"""The graph as users see it: nodes, which are recorded applications and leaves, and the edges between them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from weft._autograd.derive import derivative_of, on_tape, smooth_outputs
from weft._autograd.engine import gradients_of, output_of
from weft._autograd.graph import (
    Vertex,
    application_key,
    inputs_of,
    is_spent,
    node_hooks_of,
    second_backward_error,
    vertex_of,
)
from weft._autograd.hooks import Gradients
from weft._autograd.node import backward_name, count_outputs, edges_of
from weft._autograd.saving import Packed, save_apart
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.forks import renew_in_forks
from weft._base.guards import TUPLE, is_tuple
from weft._base.handles import Handle
from weft._base.size import Size
from weft._base.state import ambient
from weft._base.types import Arg, AttributeValue, Result
from weft._lazy.aval import Aval
from weft._lazy.call import plain
from weft._lazy.role import Interior, Leaf, custom_of
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.cotangents import as_cotangent, as_gradient_of
from weft._tensor.kind_names import advice, kind_of
from weft._tensor.saved import Location as Location
from weft._tensor.saved import SavedTensor
from weft._tensor.tensor import Tensor, operand, wrap
from weft.errors import ArgumentError, GradientError
from weft.ops._kinds import Many

Tensors = tuple[Tensor | None, ...]


class InputMetadata(NamedTuple):
    """The type of a gradient that a node takes."""

    shape: Size
    dtype: DType
    device: device


class Node:
    """A node of the graph: an application that gradients flow through, or a leaf, which accumulates them.

    There is one object for each node, as long as somebody refers to it. It keeps the part of the graph below it alive.
    """

    _places: dict[int, Location]

    def name(self) -> str:
        """The name, such as `AddBackward0`."""
        return backward_name(self._vertex)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each tensor that the node has taken, the node that has made it, and the number of its output there.

        The node is None where no gradients flow.
        """
        vertex = self._vertex
        inputs = inputs_of(vertex)
        edges = [inputs[i] for i in edges_of(vertex)]
        return tuple([(None, 0) if x.role is None else (node_of(x), index_of(x)) for x in edges])

    @property
    def metadata(self) -> dict[object, object]:
        """A dict for what users attach to the node."""
        return node_hooks_of(self._vertex).metadata

    @property
    def requires_grad(self) -> bool:
        """True: gradients flow through all nodes."""
        return True

    def register_hook(self, fn: Callable[[Tensors, Tensors], Result]) -> Handle:
        """Call `fn(grad_inputs, grad_outputs)` when a backward pass has executed the node.

        If it returns a tuple, that takes the place of `grad_inputs`, the gradients by `next_functions`.
        """
        inputs, outputs = self._input_types(), self._output_types()  # not the node, to which the hook would refer
        name = getattr(fn, "__name__", "<unknown>")

        def on_values(grads: Sequence[Value | None], cotangents: Sequence[Value | None]) -> Gradients | None:
            return _unwrapped(inputs, fn(_wrapped(inputs, grads), _wrapped(outputs, cotangents)), name)

        on_values.__name__ = name
        return Handle(node_hooks_of(self._vertex).after, on_values)

    def register_prehook(self, fn: Callable[[Tensors], Result]) -> Handle:
        """Call `fn(grad_outputs)` before a backward pass executes the node; a tuple takes the place of them."""
        types, name = self._output_types(), getattr(fn, "__name__", "<unknown>")

        def on_values(cotangents: Sequence[Value | None]) -> Gradients | None:
            return _unwrapped(types, fn(_wrapped(types, cotangents)), name)

        on_values.__name__ = name
        return Handle(node_hooks_of(self._vertex).before, on_values)

    def __call__(self, *grad_outputs: Tensor | None) -> Tensors | Tensor | None:
        """The gradients by `next_functions`, given those of the node's outputs; for a single one, not in a tuple.

        Hooks are not called. `RuntimeError` for another number of gradients.
        """
        vertex, types = self._vertex, self._output_types()
        if len(grad_outputs) != len(types):
            raise GradientError(
                f"{self.name()}: expected {len(types)} gradients, one for each output, got {len(grad_outputs)}"
            )
        if is_spent(vertex):
            raise second_backward_error()
        values = [_seed(aval, grad) for aval, grad in zip(types, grad_outputs, strict=True)]
        cotangents = [(index, grad) for index, grad in enumerate(values) if grad is not None]
        need = on_tape(inputs_of(vertex))
        members = [vertex_of(place) for place in self._places.values()]  # pyright: ignore[reportArgumentType]  no leaf's
        custom = custom_of(vertex.role)
        if custom is not None:
            every = custom(dict(cotangents), members)
            grads = [every[i] for i in need]
        else:
            grads = gradients_of(members, need, cotangents, ambient())
        by_input = dict(zip(need, grads, strict=True))
        results = _wrapped(self._input_types(), [by_input.get(i) for i in edges_of(vertex)])
        return results if len(results) != 1 else results[0]

    def _register_hook_dict(self, tensor: Tensor) -> None:
        """Accepted for compatibility: hooks of tensors need no registration."""

    def _sequence_nr(self) -> int:
        return self._vertex.time

    @property
    def _input_metadata(self) -> list[InputMetadata]:
        return [InputMetadata(aval.size, aval.dtype, aval.device) for aval in self._output_types()]

    def place_of(self, index: int) -> Location:
        """Where the output with this number is in the graph; `RuntimeError` if no tensor or node has led there."""
        place = self._places.get(index)
        if place is None:
            raise GradientError(
                f"output {index} of {self.name()} is not known here; take the edge of its tensor by get_gradient_edge()"
            )
        return place

    @property
    def _vertex(self) -> Vertex:
        return vertex_of(next(iter(self._places.values())))  # pyright: ignore[reportArgumentType]  no leaf's

    def _input_types(self) -> list[Aval]:
        vertex = self._vertex
        return [_signature_of(vertex).avals[i] for i in edges_of(vertex)]

    def _output_types(self) -> list[Aval]:
        vertex = self._vertex
        return [output.aval for output in _signature_of(vertex).outputs[: count_outputs(vertex)]]

    # --- what the derivative reads ------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> AttributeValue:
        """`_saved_NAME`: what the derivative reads of an argument, or of the "result"; `_raw_saved_NAME`: as saved."""
        for prefix in ("_saved_", "_raw_saved_"):
            if name.startswith(prefix):
                arguments = dict(self._arguments())
                argument = name.removeprefix(prefix)
                if argument in arguments:
                    return self._read_saved(arguments[argument], raw=prefix == "_raw_saved_")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *[f"_saved_{name}" for name, _ in self._arguments()]]

    def _arguments(self) -> Iterator[tuple[str, Arg]]:
        """The arguments of the call by PyTorch's names, with their position, positions, or `_Static` value."""
        vertex = self._vertex
        signature = _signature_of(vertex)
        call = signature.call
        if call is None or custom_of(vertex.role) is not None:
            return
        at = 0
        for index, (param, entry) in enumerate(zip(call.op.params, call.static, strict=True)):
            name = "self" if not index and param.name == "input" else param.name
            if not isinstance(entry, Many):
                yield name, _Static(plain(entry))
                continue
            yield name, at if entry.count == 1 else tuple(range(at, at + entry.count))
            at += entry.count
        for index in range(signature.main):
            yield (*call.op.outputs, *["result"] * signature.main)[index], at + index

    def _read_saved(self, what: Arg, *, raw: bool) -> Arg:
        if isinstance(what, _Static):
            return what.value
        if isinstance(what, TUPLE):
            return tuple([self._read_saved(each, raw=raw) for each in what])
        vertex = self._vertex
        signature = _signature_of(vertex)
        inputs = inputs_of(vertex)
        at: int = what
        if at < len(inputs) and signature.avals[at].weak:
            return inputs[at].number
        if is_spent(vertex):
            raise second_backward_error()
        derivative = derivative_of(signature, on_tape(inputs), smooth_outputs(signature))
        if what not in (*derivative.inputs, *[len(inputs) + i for i in derivative.outputs]):
            return None
        if raw and vertex.role is not None and type(vertex.role) is not Packed and isinstance(vertex, Value):
            save_apart((vertex,), SavedTensor)
            vertex = self._vertex
        if isinstance(vertex, Packed):
            saved: Arg = vertex.saved[what]
        else:
            members = [vertex_of(place) for place in self._places.values()]  # pyright: ignore[reportArgumentType]  no leaf's
            value = inputs[what] if what < len(inputs) else output_of(members, what - len(inputs), ambient())
            saved = SavedTensor(value, value if value.role is not None else None)
        return saved if raw else saved.unpack()

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """The node of a leaf, which accumulates the leaf's gradient."""

    def __init__(self, place: Location) -> None:
        assert isinstance(place.role, Leaf), "the node of a leaf"
        self._role = place.role
        owner = None if self._role.owner is None else self._role.owner()
        if owner is None and isinstance(place, Value):
            owner = wrap(place)
            owner._role = self._role
            self._role.owner = weakref.ref(owner)
        self._variable: Tensor | None = owner

    @property
    def variable(self) -> Tensor:
        """The leaf; `RuntimeError` if nothing but its gradient's place is left."""
        if self._variable is None:
            raise GradientError(
                "AccumulateGrad.variable: the leaf was deleted, and a backward pass has freed its elements"
            )
        return self._variable

    def name(self) -> str:
        """The name."""
        return "torch::autograd::AccumulateGrad"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Nothing: a leaf was made from no other tensors."""
        return ()

    def place_of(self, index: int) -> Location:
        """Where the leaf is in the graph."""
        del index
        return self._role

    def _sequence_nr(self) -> int:
        return 2**64 - 1

    @property
    def _vertex(self) -> Arg:
        return self._role

    def _input_types(self) -> list[Aval]:
        return []

    def _output_types(self) -> list[Aval]:
        return [self.variable._read().aval]

    def _arguments(self) -> Iterator[tuple[str, Arg]]:
        return iter(())


class _Static:
    """A static argument of a call."""

    def __init__(self, value: object) -> None:
        self.value = value


# no cell: a cache, keyed by all that its entries depend on
_nodes: weakref.WeakValueDictionary[Hashable, Node] = weakref.WeakValueDictionary()
# no cell: a cache, keyed by all that its entries depend on
_types: dict[str, type[Node]] = {}
_making = threading.Lock()
renew_in_forks(globals(), "_making")


def node_of(x: Location) -> Node:
    """The node of what is on the tape: the same object, as long as somebody refers to it."""
    role = x.role
    assert role is not None, "only what gradients flow to has a node"
    if (users := getattr(custom_of(role), "node", None)) is not None:
        users.put(x)
        return users
    with _making:
        key = application_key(x)
        node = _nodes.get(key)
        if node is None:
            node = _nodes[key] = AccumulateGrad(x) if isinstance(role, Leaf) else _new_node(x)
        if not isinstance(role, Leaf):
            node._places.setdefault(index_of(x), x)  # pyright: ignore[reportPrivateUsage]  contexts are nodes, and their other names the user's
        return node


def _new_node(x: Location) -> Node:
    name = backward_name(x).rpartition("::")[2]  # pyright: ignore[reportArgumentType]  no leaf's role
    node_type = _types.setdefault(name, type(name, (Node,), {"__doc__": f"The node of an application: {name}."}))
    node = node_type()
    node._places = {}  # pyright: ignore[reportPrivateUsage]  contexts are nodes, and their other names the user's
    return node


def grad_fn_of(tensor: Tensor) -> Node | None:
    """The node that has made a tensor; None for a leaf."""
    return None if tensor.is_leaf else node_of(tensor._read())


def index_of(x: Location) -> int:
    """The number of a value among its application's outputs; 0 for a leaf."""
    role = x.role
    origin = None if not isinstance(role, Interior) else vertex_of(x).origin  # pyright: ignore[reportArgumentType]  no leaf's
    return 0 if origin is None else origin.index


class GradientEdge(NamedTuple):
    """Where a gradient is computed: output `output_nr` of `node`. `ownership_token` keeps a user's graph alive."""

    node: Node
    output_nr: int
    ownership_token: Node | None = None

    @property
    def place(self) -> Location:
        """What is there in the graph."""
        return self.node.place_of(self.output_nr)

    @property
    def aval(self) -> Aval:
        """The type of the gradient."""
        return self.node._output_types()[self.output_nr]  # pyright: ignore[reportPrivateUsage]  contexts are nodes, and their other names the user's


def _seed(aval: Aval, grad: Tensor | None) -> Value | None:
    return None if grad is None else as_cotangent(operand(grad.to(aval.dtype)), aval, "the gradient")


def _signature_of(vertex: Vertex) -> Signature:
    assert vertex.origin is not None, "leaves have a class of their own"
    return vertex.origin.signature


def _wrapped(avals: Sequence[Aval], grads: Sequence[Value | None]) -> Tensors:
    pairs = zip(avals, grads, strict=True)
    return tuple([None if grad is None else wrap(as_gradient_of(aval, grad)) for aval, grad in pairs])


def _unwrapped(avals: Sequence[Aval], results: Arg, hook: str) -> Gradients | None:
    """What a hook returns, as values."""
    if results is None:
        return None
    if not is_tuple(results):
        raise ArgumentError(f"expected tuple, but hook returned '{kind_of(results)}'{advice(results)}")
    values: Gradients = []
    for at, result in enumerate(results):
        if result is not None and not isinstance(result, Tensor):
            raise ArgumentError(f"expected Variable, but hook returned '{kind_of(result)}'{advice(result)}")
        fits = result is not None and at < len(avals)
        values.append(as_cotangent(operand(result), avals[at], f"the result of hook '{hook}'") if fits else None)
    return values
