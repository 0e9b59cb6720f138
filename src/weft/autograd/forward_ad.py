"""Forward mode with dual tensors: a tensor and its tangent, which operators on the tape pass on.

A dual tensor has a place of its own in the recorded graph, and `unpack_dual` takes the tangent along the graph to what
it unpacks. What is recorded in `no_grad` is noted by the level (`_autograd/levels.py`).
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from weft._autograd.forward import pushed_forward
from weft._autograd.levels import Level, flows_past
from weft._base.state import ambient, set_field
from weft._lazy.external import taken_in
from weft._lazy.value import Value
from weft._tensor.directions import require_tangent
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import entered, own
from weft.errors import TransformError


class _DualLevel(Level):
    """The tangents of dual tensors by their values, and as the tensors that users have given."""

    __slots__ = ("originals", "tangents")

    def __init__(self) -> None:
        super().__init__()
        self.originals: WeakKeyDictionary[Value, Tensor] = WeakKeyDictionary()
        self.tangents: WeakKeyDictionary[Value, Value | None] = WeakKeyDictionary()


# no cell: calls within a level with tangents are not captured
_level: ContextVar[_DualLevel | None] = ContextVar("weft_dual_level", default=None)


class UnpackedDualTensor(NamedTuple):
    """A tensor without its tangent, and the tangent, or None."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Start a level, in which dual tensors can be made; returns its number, 0. `RuntimeError` within another one."""
    if _level.get() is not None:
        raise TransformError("Nested forward mode AD is not supported at the moment")
    level = _DualLevel()
    _level.set(level)
    set_field(forward=(*ambient().watchers.forward, level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level, and forget all of its tangents."""
    current = _level.get()
    if current is None:
        raise TransformError("Dual level must be a positive number.")
    if level not in (None, 0):
        raise TransformError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _level.set(None)
    set_field(forward=tuple([other for other in ambient().watchers.forward if other is not current]))
    current.end()


class dual_level:
    """A block with a level of its own."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same elements with a tangent, which must have its size; gradients flow to both.

    `RuntimeError` outside of a level, and for a tensor that has a tangent already.
    """
    del level
    current = _level.get()
    if current is None:
        raise TransformError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    require_tangent(tensor, tangent)
    if _tangent_of(tensor, current) is not None:
        raise TransformError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    value = _place(taken_in(operand(tensor)), current)
    # The user's own tangent is kept beside the tape's value: `unpack_dual` gives it back, with its graph.
    current.originals[value] = own_type = tangent if tangent.dtype is tensor.dtype else tangent.to(tensor.dtype)
    current.tangents[value] = taken_in(operand(own_type))
    return wrap(value)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor without its tangent, and the tangent: None if it does not depend on a dual tensor."""
    del level
    current = _level.get()
    tangent = None if current is None else _tangent_of(tensor, current)
    if current is None or tangent is None:
        return UnpackedDualTensor(tensor, None)
    original = current.originals.get(tensor._read())
    released = _released(tangent, current) if original is None else original
    return UnpackedDualTensor(_primal_of(tensor, current), released)


def _place(value: Value, level: _DualLevel) -> Value:
    """The same contents at a place of the level's, on the tape unless that is turned off."""
    place = entered(value) if ambient().grad else own(value)
    level.add_place(place)
    return place


def _tangent_of(tensor: Tensor, level: _DualLevel) -> Value | None:
    return pushed_forward([taken_in(operand(tensor))], level.tangents, level.links)[0]


def _primal_of(tensor: Tensor, level: _DualLevel) -> Tensor:
    """The tensor at another place, which has no tangent."""
    value = operand(tensor)
    if not (ambient().grad and flows_past(value, level.places)):
        return wrap(own(value))
    value = _place(value, level)
    level.tangents[value] = None
    return wrap(value)


def _released(value: Value, level: _DualLevel) -> Tensor:
    """A tangent, outside of the tape if gradients flow from it to nothing but dual tensors."""
    return wrap(value if flows_past(value, level.places) else own(value))
