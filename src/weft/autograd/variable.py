"""`Variable`: what a tensor that takes part in backward passes was called in old programs."""

from __future__ import annotations

from weft._autograd.engine import queue_callback
from weft._base.state import default_dtype
from weft._base.types import Result
from weft._tensor.codegen import op
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, GradientError


class VariableMeta(type):
    """The type of `Variable`, for which every tensor is an instance of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class _ExecutionEngine:
    """What runs backward passes, for hooks that want to be called when one is complete."""

    queue_callback = staticmethod(queue_callback)


class Variable(metaclass=VariableMeta):
    """`Variable(data, requires_grad)` is a leaf that shares its elements with the tensor `data`."""

    _execution_engine = _ExecutionEngine()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Tensor:
        """A tensor, empty without `data`; `TypeError` if that is no tensor."""
        if data is None:
            data = op.zeros((0,), dtype=default_dtype())
        if not isinstance(data, Tensor):
            raise ArgumentError(f"Variable data has to be a tensor, but got {kind_of(data)}")
        return data.detach().requires_grad_(requires_grad)


def variable(*_: object, **__: object) -> Result:
    """Raises `RuntimeError`: `weft.tensor` makes tensors."""
    raise GradientError("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead")


vars(variable)["Variable"] = Variable  # the function hides the module of this name, from which libraries take the class
