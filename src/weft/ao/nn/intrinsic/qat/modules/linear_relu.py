"""An affine layer and a ReLU, with fake-quantized weights."""

from __future__ import annotations

from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.ao.nn.intrinsic.modules.fused import LinearReLU as FusedLinearReLU
from weft.ao.nn.qat.modules.linear import Linear
from weft.nn import functional as F


class LinearReLU(Linear, FusedModule):
    """The positive part of x weight' + bias, whose weight is rounded as it will be when it is quantized."""

    _FLOAT_MODULE = FusedLinearReLU
    _fuses_relu = True

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.relu(super().forward(input))
