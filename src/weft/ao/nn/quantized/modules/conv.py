"""Quantized convolutions over one, two or three dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType, float32, qint8
from weft._base.types import AttributeValue
from weft._tensor.codegen import op
from weft._tensor.composite.quantized import quantize_per_tensor
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules import fused
from weft.ao.nn.intrinsic.qat.modules import conv_fused
from weft.ao.nn.qat.modules import conv as qat
from weft.ao.nn.quantized._arithmetic import observed_weight, onto, require_batch, require_quantized, weights_of
from weft.ao.nn.quantized._module import WeightedQuantizedModule, grid_of, observer_of, require_type
from weft.errors import UnsupportedError, ValueRangeError
from weft.nn import Conv1d as FloatConv1d
from weft.nn import Conv2d as FloatConv2d
from weft.nn import Conv3d as FloatConv3d
from weft.nn import ConvTranspose1d as FloatConvTranspose1d
from weft.nn import ConvTranspose2d as FloatConvTranspose2d
from weft.nn import ConvTranspose3d as FloatConvTranspose3d
from weft.nn import functional as F
from weft.nn.utils.fusion import fuse_conv_bn_weights
from weft.ops._neural import ntuple

if TYPE_CHECKING:
    from weft.nn._module import Module


class _ConvNd(WeightedQuantizedModule):
    """The base of quantized convolutions. Weights have a grid, or one for each output channel; biases are floats."""

    _dims: ClassVar[int]
    _FLOAT_MODULE: ClassVar[Any]
    _QAT_MODULES: ClassVar[tuple[Any, ...]] = ()
    _transposed: ClassVar[bool] = False

    def _setup(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | Sequence[int],
        output_padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
    ) -> None:
        super().__init__()
        n = self._dims
        if padding_mode not in ("zeros", "reflect"):
            raise ValueRangeError(
                f"quantized convolutions have padding_mode 'zeros' or 'reflect', not {padding_mode!r}"
            )
        if isinstance(padding, str):
            raise UnsupportedError(f"quantized convolutions take padding in numbers, not {padding!r}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueRangeError(f"{name} must be divisible by groups, but got {channels} and {groups}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = ntuple(kernel_size, n), ntuple(stride, n)
        self.padding, self.dilation = ntuple(padding, n), ntuple(dilation, n)
        self.output_padding = ntuple(output_padding, n)
        self.transposed, self.groups, self.padding_mode = self._transposed, groups, padding_mode
        self.scale, self.zero_point = 1.0, 0
        first, second = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        weight = op.zeros((first, second // groups, *self.kernel_size), dtype=float32)
        bias_of_floats = op.zeros((out_channels,), dtype=float32) if bias else None
        self.set_weight_bias(quantize_per_tensor(weight, 1.0, 0, qint8), bias_of_floats)

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Set the weight and the bias."""
        self._packed_params = weights_of(w, b)

    def weight(self) -> Tensor:
        """The weight, (out_channels, in_channels / groups, ...kernel)."""
        return self._packed_params.weight

    def bias(self) -> Tensor | None:
        """The bias, (out_channels), of floats."""
        return self._packed_params.bias

    def _entries(self) -> dict[str, AttributeValue]:
        return {"weight": self.weight(), "bias": self.bias(), **super()._entries()}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        super()._take(entries)
        self.set_weight_bias(entries["weight"], entries["bias"])

    def _get_name(self) -> str:
        return f"QuantizedConv{self._dims}d"

    def extra_repr(self) -> str:
        """Sizes and grid, and the arguments that are not at their defaults."""
        n = self._dims
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if getattr(self, name) != (usual,) * n:
                text += f", {name}={getattr(self, name)}"
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias() is None else "")

    def _numbers(self, input: Tensor) -> Tensor:
        """The results before they are put on the grid."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            both = [amount for side in reversed(self.padding) for amount in (side, side)]
            input, padding = F.pad(input, both, mode=self.padding_mode), 0
        return self._packed_params.conv(input, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, ...) to (batch, out_channels, ...), both quantized."""
        require_batch(input, self._dims + 2)
        return onto(self._numbers(input), self.scale, self.zero_point, input.dtype)

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed or a fake-quantized convolution."""
        del use_precomputed_fake_quant
        activation = observer_of(mod)
        if hasattr(mod, "weight_fake_quant"):
            require_type(mod, cls._QAT_MODULES, cls)
            observer = mod.weight_fake_quant
            # In training the normalisation was beside the weights; a quantized layer has none.
            if isinstance(mod, conv_fused.ConvBnNd):
                mod.fold_norm(fuse_conv_bn_weights)
        else:
            require_type(mod, cls._FLOAT_MODULE, cls)
            observer = mod.qconfig.weight()
            mod = mod[0] if isinstance(mod, fused.FusedModule) else mod
        result = cls._like(mod)
        result.set_weight_bias(observed_weight(mod, observer), mod.bias)
        if activation.dtype is not float32:
            result.scale, result.zero_point = grid_of(activation)
        return result

    @classmethod
    def _like(cls, mod: Module) -> Module:
        return cls(**qat.options_of(mod))


ConvNd = _ConvNd  # for other modules: PyTorch has it as a private class


class _Conv(_ConvNd):
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
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        del device, dtype
        self._setup(in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode)


class Conv1d(_Conv):
    """Quantized cross-correlation of (batch, channels, length)."""

    _dims = 1
    _FLOAT_MODULE = (FloatConv1d, fused.ConvReLU1d)
    _QAT_MODULES = (qat.Conv1d, conv_fused.ConvReLU1d, conv_fused.ConvBn1d, conv_fused.ConvBnReLU1d)


class Conv2d(_Conv):
    """Quantized cross-correlation of (batch, channels, height, width)."""

    _dims = 2
    _FLOAT_MODULE = (FloatConv2d, fused.ConvReLU2d)
    _QAT_MODULES = (qat.Conv2d, conv_fused.ConvReLU2d, conv_fused.ConvBn2d, conv_fused.ConvBnReLU2d)


class Conv3d(_Conv):
    """Quantized cross-correlation of (batch, channels, depth, height, width)."""

    _dims = 3
    _FLOAT_MODULE = (FloatConv3d, fused.ConvReLU3d)
    _QAT_MODULES = (qat.Conv3d, conv_fused.ConvReLU3d, conv_fused.ConvBn3d, conv_fused.ConvBnReLU3d)


class _ConvTranspose(_ConvNd):
    """The base of transposed convolutions, which add float32 products of the integers."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        del device, dtype
        self._setup(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            padding_mode,
        )

    def _get_name(self) -> str:
        return f"QuantizedConvTranspose{self._dims}d"

    def _numbers(self, input: Tensor) -> Tensor:
        require_quantized(input, "conv_transpose")
        function = getattr(F, f"conv_transpose{self._dims}d")
        return function(
            input.dequantize(),
            self.weight().dequantize(),
            self.bias(),
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )

    @classmethod
    def _like(cls, mod: Module) -> Module:
        return cls(**qat.options_of(mod), output_padding=mod.output_padding)


class ConvTranspose1d(_ConvTranspose):
    """The transpose of a quantized convolution over one dim."""

    _dims = 1
    _FLOAT_MODULE = FloatConvTranspose1d


class ConvTranspose2d(_ConvTranspose):
    """The transpose of a quantized convolution over two dims."""

    _dims = 2
    _FLOAT_MODULE = FloatConvTranspose2d


class ConvTranspose3d(_ConvTranspose):
    """The transpose of a quantized convolution over three dims."""

    _dims = 3
    _FLOAT_MODULE = FloatConvTranspose3d
