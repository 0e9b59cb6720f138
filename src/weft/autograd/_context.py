"""What a user's function knows of a call: the `ctx` of `forward` and `backward`, which is the call's node, too."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from weft._autograd.graph import links_to, second_backward_error
from weft._base.types import Arg, Result
from weft._lazy.value import Value
from weft._tensor.kind_names import kind_of
from weft._tensor.node import Location, Node, index_of
from weft._tensor.saved import SavedTensor, current_packing
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, GradientError

Ctx: TypeAlias = Any
"""The `ctx` of a `Function`: a `FunctionCtx`, with attributes that the author of the function chooses."""


class FunctionCtx:
    """What `forward` passes on to `backward`: saved tensors, options, and attributes of the user's."""

    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple[SavedTensor | None, ...] = ()
    _saved_for_forward: tuple[SavedTensor | None, ...] = ()
    _freed = False
    _once = False
    _unread = True
    _materialize = True
    _plain: tuple[int, ...] = ()
    _dirty: tuple[int, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors, with their present values, for `backward`."""
        if any(self.needs_input_grad):
            for at, t in enumerate(tensors):
                if t is not None and not isinstance(t, Tensor):
                    raise ArgumentError(
                        f"save_for_backward can only save variables, but argument {at} is of type {kind_of(t)}"
                    )
        self._saved = _saved(tensors)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `jvp`, which finds them in `saved_tensors`."""
        self._saved_for_forward = _saved(tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that `save_for_backward` kept."""
        if self._freed:
            raise second_backward_error()
        if self._once and not self._unread:
            raise GradientError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
                "autograd.Function. Either access saved_tensors only once, or set clear_saved_tensors_on_access=False."
            )
        self._unread = False
        return tuple([None if s is None else s.unpack(self._place_of(s)) for s in self._saved])

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare results through which no gradient flows."""
        for t in tensors:
            if not isinstance(t, Tensor):
                raise GradientError(f"mark_non_differentiable only accepts variable arguments, but got {kind_of(t)}")
        self._plain = tuple(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare inputs that `forward` has written in place; it must return them."""
        for at, t in enumerate(tensors):
            if not isinstance(t, Tensor):
                raise GradientError(f"mark_dirty can only accept variables, but argument {at} is of type {kind_of(t)}")
        self._dirty = tuple(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether `backward` gets zeros, rather than None, for results without a gradient."""
        self._materialize = value

    def _place_of(self, saved: SavedTensor) -> Location | None:
        """Where a saved result is in the graph, if it is one."""
        del saved
        return None


def _saved(tensors: tuple[Tensor | None, ...]) -> tuple[SavedTensor | None, ...]:
    """Tensors as they are now. What is no tensor is left out, where nothing needs a gradient."""
    return tuple([_saved_tensor(t) if isinstance(t, Tensor) else None for t in tensors])


def _saved_tensor(tensor: Tensor) -> SavedTensor:
    value = tensor._read()
    return SavedTensor(value, None if value.role is None else links_to((value,))[0], tensor)


class BackwardCFunction(FunctionCtx, Node):
    """The `ctx` of a call of a user's function, which is the call's node in the graph, too.

    It does not keep the graph alive, as the graph refers to it. Each `Function` has a subclass, `_backward_cls`.
    """

    _forward_cls: Any

    def __init__(self) -> None:
        self._references: dict[int, Any] = {}

    def name(self) -> str:
        """The function's name, followed by "Backward"."""
        return type(self).__name__

    def apply(self, *grads: Arg) -> Result:
        """The gradients of the arguments by the user's `backward`."""
        return self._forward_cls._derivative()(self, *grads)

    def apply_jvp(self, *tangents: Arg) -> Result:
        """The tangents of the results by the user's `jvp`."""
        return self._forward_cls.jvp(self, *tangents)

    def put(self, x: Location) -> None:
        """Tell the node where one of its results is in the graph."""
        self._references[index_of(x)] = weakref.ref(x) if isinstance(x, Value) else lambda: x

    @property
    def _places(self) -> dict[int, Location]:  # pyright: ignore[reportIncompatibleVariableOverride]  known, not kept
        places = {index: reference() for index, reference in self._references.items()}
        return {index: place for index, place in places.items() if place is not None}

    @property
    def _vertex(self) -> Arg:
        if not self._places:
            raise GradientError(
                "This attribute is invalid for this instance of autograd.Function: it is read before the function has "
                "returned, or when the results are gone. Keep a result, or the edge from get_gradient_edge()."
            )
        return super()._vertex

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor | None, ...]:
        """The saved tensors, to which hooks can be given."""
        return self._saved

    def _arguments(self) -> Iterator[tuple[str, Arg]]:
        return iter(())

    def _place_of(self, saved: SavedTensor) -> Location | None:
        return None if saved.output is None else self._places.get(saved.output)

    def _recorded(self, results: Sequence[Value]) -> None:
        """Find the raw `results` among the saved tensors, and pack these if there are hooks for that."""
        numbers = {id(value): number for number, value in enumerate(results)}
        packing = current_packing()
        for saved in filter(None, self._saved):
            saved.output = numbers.get(id(saved.kept))
            if packing is not None:
                saved.pack(packing, self._place_of(saved))

    def _release(self) -> None:
        """Free the saved tensors after a backward pass; reading them again is an error."""
        self._saved = ()
        self._freed = True
