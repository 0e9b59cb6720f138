"""Forward mode with dual tensors: a tensor and its tangent, which operators on the tape pass on.

A dual tensor has a place of its own in the recorded graph, and `unpack_dual` takes the tangent along the graph to what
it unpacks. So only what is on the tape counts, and not what was computed in `no_grad`.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import NamedTuple

from weft._autograd.forward import pushed_forward
from weft._autograd.graph import flows_to_before
from weft._base.state import ambient
from weft._lazy.value import Value, tick
from weft._tensor.directions import require_tangent
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import entered, own
from weft.errors import GradientError, TransformError


class _Level:
    """The tangents of dual tensors, by their values, and the time from which on there are some."""

    def __init__(self) -> None:
        self.start = tick()
        self.tangents: dict[Value, Value | None] = {}


_level: ContextVar[_Level | None] = ContextVar("weft_dual_level", default=None)


class UnpackedDualTensor(NamedTuple):
    """A tensor without its tangent, and the tangent, or None."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Start a level, in which dual tensors can be made; returns its number, 0. `RuntimeError` within another one."""
    if _level.get() is not None:
        raise TransformError("Nested forward mode AD is not supported at the moment")
    _level.set(_Level())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level, and forget all of its tangents."""
    if _level.get() is None:
        raise TransformError("Dual level must be a positive number.")
    if level not in (None, 0):
        raise TransformError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _level.set(None)


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

    `RuntimeError` outside of a level, in `no_grad`, and for a tensor that has a tangent already.
    """
    del level
    current = _level.get()
    if current is None:
        raise TransformError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    require_tangent(tensor, tangent)
    if not ambient().grad:
        raise GradientError("make_dual() in no_grad: tangents are taken along the tape, on which nothing is put there")
    if _tangent_of(tensor, current) is not None:
        raise TransformError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    value = entered(operand(tensor))
    current.tangents[value] = operand(tangent if tangent.dtype is tensor.dtype else tangent.to(tensor.dtype))
    return wrap(value)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor without its tangent, and the tangent: None if it does not depend on a dual tensor."""
    del level
    current = _level.get()
    tangent = None if current is None else _tangent_of(tensor, current)
    if current is None or tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_primal_of(tensor, current), _released(tangent, current))


def _tangent_of(tensor: Tensor, level: _Level) -> Value | None:
    return pushed_forward([operand(tensor)], level.tangents)[0] if tensor.requires_grad else None


def _primal_of(tensor: Tensor, level: _Level) -> Tensor:
    """The tensor at another place, which has no tangent."""
    value = operand(tensor)
    if not (ambient().grad and flows_to_before(value, level.start)):
        return wrap(own(value))
    value = entered(value)
    level.tangents[value] = None
    return wrap(value)


def _released(value: Value, level: _Level) -> Tensor:
    """A tangent, outside of the tape if gradients flow from it to nothing but dual tensors."""
    return wrap(value if flows_to_before(value, level.start) else own(value))
