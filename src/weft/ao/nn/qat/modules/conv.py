"""Convolutions with fake-quantized weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.types import Kwargs
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.qat._module import FakeQuantized, require_qconfig
from weft.nn import _conv
from weft.nn._activation import ReLU
from weft.nn._parameter import Parameter
from weft.nn.utils.parametrize import type_before_parametrizations

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


def options_of(conv: Module) -> Kwargs:
    """The arguments with which a convolution like this one is made."""
    return {
        "in_channels": conv.in_channels,
        "out_channels": conv.out_channels,
        "kernel_size": conv.kernel_size,
        "stride": conv.stride,
        "padding": conv.padding,
        "dilation": conv.dilation,
        "groups": conv.groups,
        "bias": conv.bias is not None,
        "padding_mode": conv.padding_mode,
    }


class _Conv(FakeQuantized):
    _FLOAT_MODULE: ClassVar[Any]
    _FUSED: ClassVar[Any]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: QConfigAny = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        layer: AnyModule = super()
        layer.__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self._set_fake_quant(qconfig)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, ...) to (batch, out_channels, ...)."""
        own: AnyModule = self
        return own._conv_forward(input, self.weight_fake_quant(own.weight), own.bias)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The layer with the parameters of a float one that has a `qconfig`."""
        del use_precomputed_fake_quant
        qconfig = require_qconfig(mod, (cls._FLOAT_MODULE, cls._FUSED), cls)
        conv = mod[0] if type_before_parametrizations(mod) is cls._FUSED else mod
        result: AnyModule = cls(**options_of(conv), qconfig=qconfig)
        result.weight, result.bias = conv.weight, conv.bias
        return result

    def to_float(self) -> Module:
        """A float layer with the same parameters."""
        own: AnyModule = self
        result = self._FLOAT_MODULE(**options_of(own))
        result.weight = Parameter(own.weight.detach())
        if own.bias is not None:
            result.bias = Parameter(own.bias.detach())
        result.train(self.training)
        return self._FUSED(result, ReLU()) if self._fuses_relu else result


class Conv1d(_Conv, _conv.Conv1d):
    """A convolution over one dim, whose weight is rounded as it will be when it is quantized."""

    _FLOAT_MODULE = _conv.Conv1d
    _FUSED = fused.ConvReLU1d


class Conv2d(_Conv, _conv.Conv2d):
    """A convolution over two dims, whose weight is rounded as it will be when it is quantized."""

    _FLOAT_MODULE = _conv.Conv2d
    _FUSED = fused.ConvReLU2d


class Conv3d(_Conv, _conv.Conv3d):
    """A convolution over three dims, whose weight is rounded as it will be when it is quantized."""

    _FLOAT_MODULE = _conv.Conv3d
    _FUSED = fused.ConvReLU3d
