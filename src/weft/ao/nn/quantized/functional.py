"""Functions of quantized tensors, which return quantized tensors."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import DType, quint8
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._arithmetic import onto, require_batch, require_quantized, weights_of
from weft.fx._wrapping import as_one_node
from weft.nn import functional as F


@as_one_node
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, scale: float | None = None, zero_point: int | None = None
) -> Tensor:
    """input weight' + bias, on the grid given, or on that of the input."""
    require_quantized(input, "linear")
    numbers = weights_of(weight, bias).linear(input)
    return onto(numbers, *_grid(input, scale, zero_point), input.dtype)


def _grid(input: Tensor, scale: float | None, zero_point: int | None) -> tuple[float, int]:
    return (
        input.q_scale() if scale is None else scale,
        input.q_zero_point() if zero_point is None else zero_point,
    )


def _conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: DType = quint8,
) -> Tensor:
    """The cross-correlation with a quantized weight, on the grid given."""
    require_quantized(input, "conv")
    require_batch(input, weight.ndim)
    if padding_mode != "zeros":
        amounts = padding if isinstance(padding, tuple | list) else (padding,) * (weight.ndim - 2)
        input = F.pad(input, [side for amount in reversed(amounts) for side in (amount, amount)], mode=padding_mode)
        padding = 0
    return onto(weights_of(weight, bias).conv(input, stride, padding, dilation, groups), scale, zero_point, dtype)


conv1d, conv2d, conv3d = (as_one_node(_conv, name) for name in ("conv1d", "conv2d", "conv3d"))


# --- on the input's grid ------------------------------------------------------------------------------------------


def avg_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, on the input's grid."""
    require_quantized(input, "avg_pool2d")
    return F.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, on the input's grid."""
    require_quantized(input, "avg_pool3d")
    return F.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """The mean of each of so many windows, on the input's grid."""
    require_quantized(input, "adaptive_avg_pool2d")
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """The mean of each of so many windows, on the input's grid."""
    require_quantized(input, "adaptive_avg_pool3d")
    return F.adaptive_avg_pool3d(input, output_size)


def max_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window."""
    require_quantized(input, "max_pool1d")
    return F.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window."""
    require_quantized(input, "max_pool2d")
    return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def interpolate(
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The tensor with other sizes of its last dims, on the same grid."""
    require_quantized(input, "interpolate")
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def upsample(
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The former name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Tensor, size: object = None, scale_factor: object = None) -> Tensor:
    """`interpolate` between neighbours, with corners kept."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def upsample_nearest(input: Tensor, size: object = None, scale_factor: object = None) -> Tensor:
    """`interpolate` by the nearest element."""
    return interpolate(input, size, scale_factor, "nearest")


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Numbers brought between two others, on the input's grid."""
    require_quantized(input, "hardtanh")
    return F.hardtanh(input, min_val, max_val, inplace)


def clamp(input: Tensor, min_: float, max_: float) -> Tensor:
    """Numbers brought between two others, on the input's grid."""
    require_quantized(input, "clamp")
    return input.clamp(min_, max_)


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """Numbers up to a threshold replaced by `value`, on the input's grid."""
    require_quantized(input, "threshold")
    return F.threshold(input, threshold, value)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Hardsigmoid, on the grid from 0 to 1."""
    require_quantized(input, "hardsigmoid")
    return F.hardsigmoid(input, inplace)


# --- on a grid of their own ---------------------------------------------------------------------------------------


def celu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """CELU, on the grid given."""
    require_quantized(input, "celu")
    return onto(F.celu(input.dequantize(), alpha), scale, zero_point, input.dtype)


def elu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """ELU, on the grid given."""
    require_quantized(input, "elu")
    return onto(F.elu(input.dequantize(), alpha), scale, zero_point, input.dtype)


def hardswish(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """Hardswish, on the grid given."""
    require_quantized(input, "hardswish")
    return onto(F.hardswish(input.dequantize()), scale, zero_point, input.dtype)


def leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Tensor:
    """Leaky ReLU, on the grid given, or on that of the input."""
    require_quantized(input, "leaky_relu")
    if scale is None or zero_point is None:
        return F.leaky_relu(input, negative_slope, inplace)
    return onto(F.leaky_relu(input.dequantize(), negative_slope), scale, zero_point, input.dtype)
