"""Convolutions over one, two or three dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._linear import fresh, uniform_by_fan
from weft.nn._lookup import options_repr
from weft.nn._module import Module
from weft.ops._neural import ntuple

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """The base of all convolutions.

    Weights are (out_channels, in_channels / groups, ...kernel); in transposed convolutions (in_channels, out_channels /
    groups, ...kernel). Weights and bias are drawn uniformly from ±1 / sqrt(fan in).
    """

    _dims: int
    _transposed = False

    def _setup(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: str | int | Sequence[int],
        output_padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: DeviceLike | None,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        n = self._dims
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = ntuple(kernel_size, n)
        self.stride = ntuple(stride, n)
        self.padding = padding if isinstance(padding, str) else ntuple(padding, n)
        self.output_padding = ntuple(output_padding, n)
        self.dilation = ntuple(dilation, n)
        self.transposed = self._transposed
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self.weight = fresh(self._weight_shape(), device, dtype)
        self.register_parameter("bias", fresh((out_channels,), device, dtype) if bias else None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self._transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueRangeError("groups must be a positive integer")
        if self.in_channels % self.groups:
            raise ValueRangeError("in_channels must be divisible by groups")
        if self.out_channels % self.groups:
            raise ValueRangeError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueRangeError(f"Invalid padding string {self.padding!r}, should be one of {{'valid', 'same'}}")
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ValueRangeError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            modes = set(_PADDING_MODES)
            raise ValueRangeError(f"padding_mode must be one of {modes}, but got padding_mode='{self.padding_mode}'")

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            uniform_by_fan(self.bias, math.prod(self.weight.shape[1:]))

    def extra_repr(self) -> str:
        """The sizes, and the arguments that are not at their defaults."""
        n = self._dims
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += options_repr(self, padding=(0,) * n, dilation=(1,) * n, output_padding=(0,) * n, groups=1)
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    """A cross-correlation with learnt kernels."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        self._setup(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            0,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _amounts(self) -> list[int]:
        """Padding at both ends of each dim, the last dim first, as `F.pad` takes it."""
        amounts: list[int] = []
        for at in reversed(range(self._dims)):
            if self.padding == "same":
                total = self.dilation[at] * (self.kernel_size[at] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [0 if self.padding == "valid" else int(self.padding[at])] * 2
        return amounts

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, ...) to (batch, out_channels, ...); the batch may be absent."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with another weight, as layers derived from this one compute it."""
        convolve = getattr(F, f"conv{self._dims}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._amounts(), mode=self.padding_mode)
            padding = 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution of (batch, channels, length)."""

    _dims = 1


class Conv2d(_Conv):
    """Convolution of (batch, channels, height, width)."""

    _dims = 2


class Conv3d(_Conv):
    """Convolution of (batch, channels, depth, height, width)."""

    _dims = 3


class _ConvTranspose(_ConvNd):
    """The transposed convolution: the gradient of a convolution with respect to its input, as a layer."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueRangeError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
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
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """(batch, in_channels, ...) to (batch, out_channels, ...), of the sizes `output_size` if given."""
        extra = self.output_padding if output_size is None else self._output_padding(input, tuple(output_size))
        convolve = getattr(F, f"conv_transpose{self._dims}d")
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _output_padding(self, input: Tensor, wanted: tuple[int, ...]) -> tuple[int, ...]:
        n = self._dims
        if len(wanted) not in (n, n + 2):
            raise ValueRangeError(
                f"ConvTranspose{n}D: for {input.ndim}D input, output_size must have {n} or {n + 2} elements "
                f"(got {len(wanted)})"
            )
        wanted = wanted[-n:]
        least = [
            (size - 1) * step - 2 * pad + wide * (kernel - 1) + 1
            for size, step, pad, wide, kernel in zip(
                input.shape[-n:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        # A strided convolution maps `step` sizes to one; any of these can be asked for.
        most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
        if any(not low <= size <= high for low, size, high in zip(least, wanted, most, strict=True)):
            raise ValueRangeError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to {most} (for an "
                f"input of {input.shape[2:]})"
            )
        return tuple(size - low for size, low in zip(wanted, least, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (batch, channels, length)."""

    _dims = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (batch, channels, height, width)."""

    _dims = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (batch, channels, depth, height, width)."""

    _dims = 3
