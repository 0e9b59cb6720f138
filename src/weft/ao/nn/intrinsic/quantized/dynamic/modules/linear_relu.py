"""The affine layer with quantized weights and a ReLU, whose input is put on a grid at each call."""

from __future__ import annotations

from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.quantized.dynamic.modules.linear import Linear
from weft.nn import functional as F


class LinearReLU(Linear):
    """The positive part of a dynamically quantized affine layer."""

    _FLOAT_MODULE = (fused.LinearReLU,)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"

    def _numbers(self, x: Tensor) -> Tensor:
        return F.relu(super()._numbers(x))
