"""Convolutions with what follows them, with fake-quantized weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.ao.nn.intrinsic.qat.modules._with_norm import WithNorm
from weft.ao.nn.qat._module import FakeQuantized, require_qconfig
from weft.ao.nn.qat.modules import conv as qat
from weft.nn import _conv
from weft.nn import functional as F
from weft.nn._activation import ReLU
from weft.nn._module import Module
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._containers import AnyModule

_STATE = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class _ConvBnNd(WithNorm, FakeQuantized):
    """The base of convolutions with their normalisation."""

    _version = 2
    _FLOAT_MODULE: ClassVar[Any]
    _FLOAT_CONV_MODULE: ClassVar[Any]
    _FLOAT_BN_MODULE: ClassVar[Any]
    _FLOAT_RELU_MODULE: ClassVar[Any] = None
    _FUSED_FLOAT_MODULE: ClassVar[Any] = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-5,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfigAny = None,
    ) -> None:
        own: AnyModule = self
        self._FLOAT_CONV_MODULE.__init__(
            own, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bool(bias), padding_mode
        )
        self._set_norm(self._FLOAT_BN_MODULE(out_channels, eps, momentum, True, True), freeze_bn)
        self._set_fake_quant(qconfig)

    def _linear(self, input: Tensor, weight: Tensor) -> Tensor:
        own: AnyModule = self
        return own._conv_forward(input, weight, None)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The layer with the parameters of a fused float one that has a `qconfig`."""
        del use_precomputed_fake_quant
        qconfig = require_qconfig(mod, (cls._FLOAT_MODULE,), cls)
        conv, norm = mod[0], mod[1]
        result: AnyModule = cls(**qat.options_of(conv), eps=norm.eps, momentum=norm.momentum, qconfig=qconfig)
        result.weight, result.bias = conv.weight, conv.bias
        for name in _STATE:
            setattr(result.bn, name, getattr(norm, name))
        return result

    def to_float(self) -> Module:
        """One float convolution with the normalisation folded in, and the ReLU after it."""
        own: AnyModule = self
        conv = self._FLOAT_CONV_MODULE(**qat.options_of(own))
        conv.weight, conv.bias = own.weight, own.bias
        whole = fuse_conv_bn_eval(conv.eval(), self.bn.eval())
        return self._FUSED_FLOAT_MODULE(whole, ReLU()) if self._FLOAT_RELU_MODULE else whole


ConvBnNd = _ConvBnNd  # for other modules: PyTorch has it as a private class


class _ConvBnReLU(_ConvBnNd):
    _FLOAT_RELU_MODULE = ReLU

    def forward(self, input: Tensor) -> Tensor:
        """The positive part of the normalised results."""
        return F.relu(self._normalised(input))


class ConvBn1d(_ConvBnNd, _conv.Conv1d):
    """A convolution over one dim and its normalisation, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBn1d, _conv.Conv1d, BatchNorm1d


class ConvBn2d(_ConvBnNd, _conv.Conv2d):
    """A convolution over two dims and its normalisation, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBn2d, _conv.Conv2d, BatchNorm2d


class ConvBn3d(_ConvBnNd, _conv.Conv3d):
    """A convolution over three dims and its normalisation, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBn3d, _conv.Conv3d, BatchNorm3d


class ConvBnReLU1d(_ConvBnReLU, _conv.Conv1d):
    """A convolution over one dim, its normalisation and a ReLU, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBnReLU1d, _conv.Conv1d, BatchNorm1d
    _FUSED_FLOAT_MODULE = fused.ConvReLU1d


class ConvBnReLU2d(_ConvBnReLU, _conv.Conv2d):
    """A convolution over two dims, its normalisation and a ReLU, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBnReLU2d, _conv.Conv2d, BatchNorm2d
    _FUSED_FLOAT_MODULE = fused.ConvReLU2d


class ConvBnReLU3d(_ConvBnReLU, _conv.Conv3d):
    """A convolution over three dims, its normalisation and a ReLU, in one layer with a rounded weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = fused.ConvBnReLU3d, _conv.Conv3d, BatchNorm3d
    _FUSED_FLOAT_MODULE = fused.ConvReLU3d


class _ConvReLU(FusedModule):
    _fuses_relu = True

    def forward(self, input: Tensor) -> Tensor:
        """The positive part of the results."""
        own: AnyModule = self
        return F.relu(own._conv_forward(input, own.weight_fake_quant(own.weight), own.bias))


class ConvReLU1d(_ConvReLU, qat.Conv1d):
    """A convolution over one dim and a ReLU, with a rounded weight."""

    __init__: Any = qat.Conv1d.__init__


class ConvReLU2d(_ConvReLU, qat.Conv2d):
    """A convolution over two dims and a ReLU, with a rounded weight."""

    __init__: Any = qat.Conv2d.__init__


class ConvReLU3d(_ConvReLU, qat.Conv3d):
    """A convolution over three dims and a ReLU, with a rounded weight."""

    __init__: Any = qat.Conv3d.__init__


def update_bn_stats(mod: AnyModule) -> None:
    """Let batches update the running statistics: `model.apply(update_bn_stats)`."""
    if isinstance(mod, WithNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: AnyModule) -> None:
    """Keep the running statistics, and normalise by them: `model.apply(freeze_bn_stats)`."""
    if isinstance(mod, WithNorm):
        mod.freeze_bn_stats()
