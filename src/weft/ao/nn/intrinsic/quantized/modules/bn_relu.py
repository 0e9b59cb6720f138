"""Quantized batch normalisation with the ReLU after it."""

from __future__ import annotations

from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized.modules import batchnorm
from weft.nn import functional as F


class BNReLU2d(batchnorm.BatchNorm2d):
    """The positive part of a quantized normalisation of (batch, channels, height, width)."""

    def _get_name(self) -> str:
        return "QuantizedBNReLU2d"

    def _float(self, numbers: Tensor) -> Tensor:
        return F.relu(super()._float(numbers))


class BNReLU3d(batchnorm.BatchNorm3d):
    """The positive part of a quantized normalisation of (batch, channels, depth, height, width)."""

    def _get_name(self) -> str:
        return "QuantizedBNReLU3d"

    def _float(self, numbers: Tensor) -> Tensor:
        return F.relu(super()._float(numbers))
