"""Functions that make quantized tensors, ask for their parts, and imitate them in floating point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.dtype import QUANTIZED, DType, float32, float64, int64
from weft._base.guards import is_list_or_tuple
from weft._base.layout import qscheme
from weft._base.state import using
from weft._base.types import Arg
from weft._tensor.arguments import Dim, refuse_of_other_library
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of
from weft._tensor.convert import tensor
from weft._tensor.functions import composite
from weft._tensor.overriding import require_not_overridden
from weft._tensor.quantized import rules as _rules
from weft._tensor.quantized.encoding import Quantized, grid_tensor, is_quantized, quantized_encoding, quantized_with
from weft._tensor.quantized.tensor import QuantizedTensor
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft.errors import DTypeError, LayoutError, OutOfRangeError, UnsupportedCallError
from weft.ops._dims import wrap_dim
from weft.ops._table import NO_FUNCTION, NO_METHOD

RULES = (_rules, QuantizedTensor)
"""What is registered by import."""


def _element(dtype: Arg) -> DType:
    require_not_overridden(dtype)
    if dtype not in QUANTIZED:
        raise DTypeError(
            f"ScalarType {dtype} is not supported in new_qtensor; use one of {', '.join(map(str, QUANTIZED))}"
        )
    return dtype


def _grid(scale: Arg, zero_point: Arg, dtype: DType, like: Tensor) -> tuple[Tensor, Tensor]:
    """A scale and a zero point without dims; `RuntimeError` for a zero point outside of the type's range."""
    if not isinstance(zero_point, Tensor):
        levels = np.iinfo(dtype.numpy)
        if not levels.min <= zero_point <= levels.max:
            side, bound = ("above upper", levels.max) if zero_point > levels.max else ("below lower", levels.min)
            raise OutOfRangeError(
                f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {side} bound {bound} of {dtype}."
            )
    scale, zero_point = (
        op.reshape(x.detach(), ()) if isinstance(x, Tensor) else tensor(x, device=like.device, dtype=kind)
        for x, kind in ((scale, float64), (zero_point, int64))
    )
    return scale.to(float64), zero_point.to(int64)


def _grids(scales: Tensor, zero_points: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and zero points in the types in which they are kept."""
    kinds = (float32, float32) if zero_points.is_floating_point() else (float64, int64)
    return scales.detach().to(kinds[0]), zero_points.detach().to(kinds[1])


# --- to quantized tensors, and back -------------------------------------------------------------------------------


@composite(public=NO_METHOD)
def quantize_per_tensor(input: Arg, scale: Arg, zero_point: Arg, dtype: Arg) -> Results:
    """The quantized tensor nearest to float32 numbers, on one grid: `(q - zero_point) * scale` with integers `q`.

    For a list of tensors, scales and zero points are tensors with one entry for each, and the result is a tuple.
    """
    require_not_overridden(input)
    refuse_of_other_library(input, "input", "quantize_per_tensor")
    if is_list_or_tuple(input):
        several = zip(input, scale, zero_point, strict=True)
        return tuple([quantize_per_tensor(x, s, z, dtype) for x, s, z in several])
    if is_quantized(input):
        raise quantized_encoding(input, "quantize_per_tensor").refusal("quantize_per_tensor")
    scale, zero_point = _grid(scale, zero_point, _element(dtype), input)
    return quantized_with(input, scale, zero_point, None, dtype)


@composite(public=NO_METHOD)
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: Dim, dtype: object) -> Tensor:
    """As `quantize_per_tensor`, with a scale and a zero point for each index along `axis`.

    Zero points of a floating type need not be on the grid; they are added before rounding.
    """
    require_not_overridden(input)
    element = _element(dtype)
    if is_quantized(input):
        raise quantized_encoding(input, "quantize_per_channel").refusal("quantize_per_channel")
    scales, zero_points = _grids(scales, zero_points)
    return quantized_with(input, scales, zero_points, wrap_dim(axis, input.ndim), element)


@composite(public=NO_METHOD)
def quantize_per_tensor_dynamic(input: Tensor, dtype: Arg, reduce_range: bool) -> Tensor:
    """As `quantize_per_tensor`, on the grid from the smallest to the largest element, with zero on it.

    With `reduce_range`, the elements take half of the levels. Nothing waits for the elements.
    """
    require_not_overridden(input)
    levels = np.iinfo(_element(dtype).numpy)
    low, high = (levels.min // 2, levels.max // 2) if reduce_range else (levels.min, levels.max)
    x = input.detach()
    zero = op.zeros((), dtype=float32, device=x.device)
    least, most = (op.amin(x), op.amax(x)) if x.numel() else (zero, zero)
    scale, zero_point = covering(least, most, low, high)
    return quantized_with(input, scale, zero_point, None, dtype)


_LEAST_SCALE = float(np.float32(6.1e-5))
"""Of a grid that is chosen by data: PyTorch's bound, with which products of scales stay in float32's range."""


def covering(least: Tensor, most: Tensor, low: int, high: int, *, symmetric: bool = False) -> tuple[Tensor, Tensor]:
    """Scale and zero point with which the levels from `low` to `high` cover numbers from `least` to `most`, and zero.

    All are tensors of one size; scales are float64, zero points int64. If `symmetric`, the zero point is the middle
    level where the range contains numbers of both signs.
    """
    least = op.clamp_max(least.to(float64), 0.0)
    most = op.clamp_min(most.to(float64), 0.0)
    both = (least < 0) & (most > 0) if symmetric else None
    if both is not None:
        below, above = (high - low) // 2 + 1, (high - low) // 2
        widest = op.maximum(op.abs(least / below), op.abs(most / above))
        least, most = op.where(both, -below * widest, least), op.where(both, above * widest, most)
    scale = (most - least) / (high - low)
    scale = op.where((scale.to(float32) == 0) | op.isinf((1 / scale).to(float32)), 0.1, scale)
    growth = op.clamp_min(_LEAST_SCALE / scale, 1.0)
    least, most, scale = least * growth, most * growth, op.clamp_min(scale, _LEAST_SCALE)
    from_low, from_high = low - least / scale, high - most / scale
    low_is_better = abs(low) + op.abs(least / scale) < abs(high) + op.abs(most / scale)
    zero_point = op.where(low_is_better, from_low, from_high)
    if both is not None:
        zero_point = op.where(both, (low + high) / 2, zero_point)
    return scale, op.round(op.clamp(zero_point, low, high)).to(int64)


@composite()
def dequantize(input: Arg) -> Results:
    """The float32 numbers of a quantized tensor, or of each tensor of a list; others as float32."""
    if is_list_or_tuple(input):
        return tuple([dequantize(x) for x in input])
    encoding = encoding_of(input)
    return encoding.whole_array() if isinstance(encoding, Quantized) else input.to(float32)


@composite()
def int_repr(input: Tensor) -> Tensor:
    """The integers of a quantized tensor."""
    return op.clone(quantized_encoding(input, "int_repr").values)


@composite(public=NO_FUNCTION)
def qscheme_(input: Tensor) -> qscheme:
    """How the integers of a quantized tensor stand for numbers, such as `per_tensor_affine`."""
    return quantized_encoding(input, "qscheme").scheme


def _of_tensor(input: Tensor, name: str) -> Quantized:
    encoding = quantized_encoding(input, name)
    if encoding.axis is not None:
        raise LayoutError(
            f"{name}(): Expected quantizer->qscheme() == kPerTensorAffine, but got {encoding.scheme}; use "
            "q_per_channel_scales() and q_per_channel_zero_points()"
        )
    return encoding


def _of_channels(input: Tensor, name: str) -> Quantized:
    encoding = quantized_encoding(input, name)
    if encoding.axis is None:
        raise LayoutError(
            f"{name}(): Expected quantizer->qscheme() == kPerChannelAffine || quantizer->qscheme() == "
            f"kPerChannelAffineFloatQParams, but got {encoding.scheme}; use q_scale() and q_zero_point()"
        )
    return encoding


@composite()
def q_scale(input: Tensor) -> float:
    """The scale of a tensor that is quantized per tensor."""
    return _of_tensor(input, "q_scale").scale.item()


@composite()
def q_zero_point(input: Tensor) -> int:
    """The zero point of a tensor that is quantized per tensor."""
    return int(_of_tensor(input, "q_zero_point").zero_point.item())


@composite()
def q_per_channel_scales(input: Tensor) -> Tensor:
    """The scales of a tensor that is quantized per channel."""
    return op.alias(_of_channels(input, "q_per_channel_scales").scale)


@composite()
def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """The zero points of a tensor that is quantized per channel."""
    return op.alias(_of_channels(input, "q_per_channel_zero_points").zero_point)


@composite()
def q_per_channel_axis(input: Tensor) -> int:
    """The dim along which a tensor is quantized per channel."""
    axis = _of_channels(input, "q_per_channel_axis").axis
    assert axis is not None, "it is quantized per channel"
    return axis


@composite("_make_per_tensor_quantized_tensor", public=NO_METHOD)
def per_tensor_from(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """The quantized tensor with these integers."""
    element = _of_integers(input)
    scales, zero_points = _grid(scale, zero_point, element, input)
    return grid_tensor(input.detach(), scales, zero_points, None, element)


@composite("_make_per_channel_quantized_tensor", public=NO_METHOD)
def per_channel_from(input: Tensor, scale: Tensor, zero_point: Tensor, axis: Dim) -> Tensor:
    """The quantized tensor with these integers, and a grid for each index along `axis`."""
    scale, zero_point = _grids(scale, zero_point)
    return grid_tensor(input.detach(), scale, zero_point, wrap_dim(axis, input.ndim), _of_integers(input))


def _of_integers(x: Tensor) -> DType:
    for dtype in QUANTIZED:
        if dtype.numpy == x.dtype.numpy:
            return dtype
    raise UnsupportedCallError(f"a quantized tensor is made of uint8, int8 or int32 integers, but got {x.dtype}")


# --- in floating point --------------------------------------------------------------------------------------------


def _require_levels(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise OutOfRangeError(
            f"`quant_min` should be less than or equal to `quant_max`, but they are {quant_min} and {quant_max}."
        )


@composite(public=NO_METHOD)
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Arg, zero_point: Arg, quant_min: int, quant_max: int
) -> Tensor:
    """Numbers rounded to those that a quantized tensor with levels from `quant_min` to `quant_max` has.

    Gradients pass unchanged where the number lies between these levels, and are zero elsewhere.
    """
    _require_levels(quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise OutOfRangeError(
            f"`zero_point` must be between `quant_min` and `quant_max`, but got {zero_point} for {quant_min} to "
            f"{quant_max}."
        )
    scale, zero_point = (
        x.detach() if isinstance(x, Tensor) else tensor(x, device=input.device, dtype=kind)
        for x, kind in ((scale, float32), (zero_point, int64))
    )
    return op.fake_quantize_affine(input, scale, zero_point, None, quant_min, quant_max)


@composite(public=NO_METHOD)
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: Dim, quant_min: int, quant_max: int
) -> Tensor:
    """As `fake_quantize_per_tensor_affine`, with a scale and a zero point for each index along `axis`."""
    _require_levels(quant_min, quant_max)
    axis = wrap_dim(axis, input.ndim)
    for name, x in (("scale", scale), ("zero_point", zero_point)):
        if tuple(x.shape) != (input.shape[axis],):
            raise OutOfRangeError(
                f"dimensions of {name} and the input's dim {axis} do not match: expected {input.shape[axis]} entries, "
                f"but got size {list(x.shape)}"
            )
    return op.fake_quantize_affine(input, scale.detach(), zero_point.detach(), axis, quant_min, quant_max)


@composite(public=NO_METHOD)
def fused_moving_avg_obs_fake_quant(
    input: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """`input` rounded as by `fake_quantize_per_tensor_affine`, on a grid that follows the range of inputs.

    The running ends of the range are written in place if `observer_on`, and the scale and the zero point if
    `fake_quant_on`. With `per_row_fake_quant`, there are ends and a grid for each index along `ch_axis`. The two flags
    are tensors, for which nothing waits.
    """
    state = (running_min, running_max, scale, zero_point)
    x = input.detach()
    if per_row_fake_quant:
        ch_axis = wrap_dim(ch_axis, x.ndim)
        others = tuple([d for d in range(x.ndim) if d != ch_axis])
        ends = (op.amin(x, others), op.amax(x, others)) if others else (x, x)
        _grow(state, x.shape[ch_axis])
    else:
        ends = (op.amin(x), op.amax(x))
    with using(grad=False):
        averaged = [
            op.where(
                op.isinf(old), op.reshape(new, old.shape), old + averaging_const * (op.reshape(new, old.shape) - old)
            )
            for old, new in zip((running_min, running_max), ends, strict=True)
        ]
        _write_where(observer_on, (running_min, running_max), averaged)
        grid = covering(running_min, running_max, quant_min, quant_max, symmetric=symmetric_quant)
        _write_where(fake_quant_on, (scale, zero_point), grid)
    rounded = op.fake_quantize_affine(
        input, scale.detach(), zero_point.detach(), ch_axis if per_row_fake_quant else None, quant_min, quant_max
    )
    return op.where(op.reshape(fake_quant_on, ()) != 0, rounded, input)


def _write_where(flag: Tensor, state: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    is_on = op.reshape(flag, ()) != 0
    for old, new in zip(state, values, strict=True):
        write(old, op.where(is_on, op.reshape(new, old.shape).to(old.dtype), old)._read())


def _grow(state: tuple[Tensor, ...], channels: int) -> None:
    """Give ends and grids of another size an entry for each channel, as before the first observation."""
    for x, start in zip(state, (float("inf"), -float("inf"), 1, 0), strict=True):
        if tuple(x.shape) != (channels,):
            x.data = op.full((channels,), start, dtype=x.dtype, device=x.device)
