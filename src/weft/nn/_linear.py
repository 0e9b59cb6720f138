"""Affine layers."""

from __future__ import annotations

import math

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._module import Module
from weft.nn._parameter import Parameter


def fresh(size: tuple[int, ...], device: DeviceLike | None = None, dtype: DType | None = None) -> Parameter:
    """A parameter of zeros, which the caller initialises."""
    return Parameter(op.zeros(size, dtype=dtype or default_dtype(), device=device))


class Identity(Module):
    """The input. Arguments of the constructor are ignored."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        del args, kwargs
        super().__init__()

    def forward(self, input: Arg) -> Arg:
        """The input."""
        return input


class Linear(Module):
    """x weight' + bias over the last dim.

    Both are drawn uniformly from ±1 / sqrt(in_features).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = fresh((out_features, in_features), device, dtype)
        self.register_parameter("bias", fresh((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            uniform_by_fan(self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def uniform_by_fan(tensor: Tensor, fan_in: int) -> None:
    """Draw uniformly from ±1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    init.uniform_(tensor, -bound, bound)


class Bilinear(Module):
    """x1 weight x2' + bias, with one weight matrix for each output feature."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueRangeError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = fresh((out_features, in1_features, in2_features), device, dtype)
        self.register_parameter("bias", fresh((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters uniformly from ±1 / sqrt(in1_features)."""
        for parameter in self.parameters(recurse=False):
            uniform_by_fan(parameter, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(..., in1_features) and (..., in2_features) to (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
