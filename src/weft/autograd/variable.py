"""The class that tensors with gradients had before version 0.4, for programs that still use it."""

from __future__ import annotations

from typing import Any

from weft._base.state import default_dtype
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError


class VariableMeta(type):
    """Every tensor is a `Variable`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """`Variable(x, requires_grad)` is `x.detach().requires_grad_(requires_grad)`; without `x`, an empty tensor."""

    def __new__(cls, data: Any = None, requires_grad: bool = False) -> Any:
        if data is not None and not isinstance(data, Tensor):
            raise ArgumentError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        tensor = op.zeros((0,), dtype=default_dtype()) if data is None else data.detach()
        return tensor.requires_grad_(requires_grad)
