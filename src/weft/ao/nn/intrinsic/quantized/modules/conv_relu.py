"""Quantized convolutions with the ReLU after them."""

from __future__ import annotations

from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.intrinsic.qat.modules import conv_fused
from weft.ao.nn.quantized.modules import conv
from weft.nn import functional as F


class _ReLU(conv.ConvNd):
    def _get_name(self) -> str:
        return f"QuantizedConvReLU{self._dims}d"

    def _numbers(self, input: Tensor) -> Tensor:
        return F.relu(super()._numbers(input))


class ConvReLU1d(_ReLU, conv.Conv1d):
    """The positive part of a quantized convolution over one dim."""

    _FLOAT_MODULE = fused.ConvReLU1d
    _QAT_MODULES = (conv_fused.ConvReLU1d, conv_fused.ConvBnReLU1d)


class ConvReLU2d(_ReLU, conv.Conv2d):
    """The positive part of a quantized convolution over two dims."""

    _FLOAT_MODULE = fused.ConvReLU2d
    _QAT_MODULES = (conv_fused.ConvReLU2d, conv_fused.ConvBnReLU2d)


class ConvReLU3d(_ReLU, conv.Conv3d):
    """The positive part of a quantized convolution over three dims."""

    _FLOAT_MODULE = fused.ConvReLU3d
    _QAT_MODULES = (conv_fused.ConvReLU3d, conv_fused.ConvBnReLU3d)
