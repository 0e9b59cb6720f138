"""Tensors that derivatives read, and the hooks that pack and unpack them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft._autograd.graph import second_backward_error
from weft._autograd.saving import save_apart
from weft._base.capture import active_capture
from weft._base.state import ambient, using
from weft._base.types import Arg
from weft._lazy.external import taken_in
from weft._lazy.role import Leaf, Role
from weft._lazy.value import Value
from weft._tensor.alias import owner_of
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import own, placed
from weft.errors import ArgumentError, GradientError, ShapeError

Location = Value | Role
"""What is in the graph: a value on the tape, or the tape that a pass has left of it, or a leaf's."""

Pack = Callable[[Tensor], Arg]
Unpack = Callable[[Arg], object]


class Packing:
    """Observes what is recorded, and lets `pack` and `unpack` keep what derivatives read."""

    def __init__(self, pack: Pack, unpack: Unpack) -> None:
        self.pack = pack
        self.unpack = unpack

    def __call__(self, values: tuple[Value, ...]) -> None:
        save_apart(values, partial(SavedTensor, packing=self))


def current_packing() -> Packing | None:
    """The hooks that pack saved tensors in this thread."""
    return next((observe for observe in ambient().watchers.observers if isinstance(observe, Packing)), None)


class SavedTensor:
    """A tensor that a derivative will read. PyTorch's programs find it as `grad_fn._raw_saved_self`.

    kept     the value, or what the hooks have packed; None once it is freed
    output   for a result of a user's function, its number among the results
    """

    def __init__(
        self, value: Value, place: Value | Role | None, tensor: Tensor | None = None, *, packing: Packing | None = None
    ) -> None:
        """Save a value; `place` is where it is in the graph, if it is on the tape, and `tensor` the user's handle."""
        self.kept: Arg = value
        self.output: int | None = None
        self.aval = value.aval
        self._place = place
        self._packing: Packing | None = None
        self._tensor = tensor
        if packing is not None:
            self.pack(packing)

    def register_hooks(self, pack: Pack, unpack: Unpack) -> None:
        """Pack the tensor now by `pack(tensor)`, and unpack it by `unpack(packed)` wherever it is read."""
        if self.kept is None:
            raise GradientError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
                "to access saved tensors after calling backward."
            )
        if self._packing is not None:
            raise GradientError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        for hook in (pack, unpack):
            if not callable(hook):
                raise ArgumentError(f"incompatible function arguments: hooks must be callable, got {kind_of(hook)}")
        self.pack(Packing(pack, unpack))

    def pack(self, packing: Packing, place: Location | None = None) -> None:
        """Replace the value by what the hooks make of it; `place` is as in `unpack`."""
        active_capture().needs_value("to pack a saved tensor")
        tensor = self.unpack(place)
        writes = owner_of(tensor)._writes
        with using(grad=False):
            packed = packing.pack(tensor)
        if owner_of(tensor)._writes != writes:
            raise GradientError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
                "cannot be modified by in-place operations as this can lead to unexpected side-effects. Please open an "
                "issue if you need to perform in-place operations on the input to a pack hook."
            )
        self.kept, self._packing, self._tensor = packed, packing, None

    def unpack(self, place: Location | None = None) -> Tensor:
        """The tensor at its place in the graph; `place` is that of a user's function's result, which is not kept."""
        if self._packing is None and isinstance(place, Value):
            return wrap(place)
        value = self._at(place or self._place, self._unpacked())
        if self._tensor is not None and self._tensor._value is value:
            return self._tensor
        role = value.role
        owner = role.owner() if isinstance(role, Leaf) and role.owner is not None else None
        return owner if owner is not None and owner._value is value else wrap(value)

    def value(self) -> Value:
        """The value for a derivative: at its place in the graph, if that is recorded."""
        return self._at(self._place if ambient().grad else None, self._unpacked())

    def _unpacked(self) -> Value:
        if self._packing is None:
            if self.kept is None:
                raise second_backward_error()
            return self.kept
        tensor = self._packing.unpack(self.kept)
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {kind_of(tensor)}"
            )
        aval = self.aval
        if tuple(tensor.shape) != tuple(aval.size):
            raise ShapeError(
                f"saved tensor unpack_hook returned a tensor of shape {list(tensor.shape)} for a saved tensor of shape "
                f"{list(aval.size)}; it must return what pack_hook got"
            )
        return taken_in(operand(tensor.to(aval.device, aval.dtype)))

    def _at(self, place: Location | None, value: Value) -> Value:
        if place is None:
            return value if value.role is None else own(value)
        if value is place or value.role is place:
            return value
        with using(grad=True):
            return placed(place, own(value))

    def release(self) -> None:
        """Free what was saved."""
        self.kept = self._packing = self._tensor = None
