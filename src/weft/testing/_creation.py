"""Random tensors to test with: `make_tensor`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from math import prod
from typing import Any

from weft._base.device import DeviceLike
from weft._base.dtype import DType, bool_, int64
from weft._base.limits import finfo, iinfo
from weft._base.types import Arg
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import empty
from weft._tensor.composite.random import randint
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError

_WIDEST = 9  # elements lie between -9 and 9, unless the caller says otherwise


def make_tensor(
    *shape: Arg,
    dtype: DType,
    device: DeviceLike | None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of uniform random numbers from [low, high): [-9, 9) for floats, [-9, 10) for integers, where not given.

    shape           sizes, or a sequence of them
    low, high       limits, which are moved into the range of the element type
    noncontiguous   makes it a view of every second element
    exclude_zero    puts 1, or the smallest normal number of a floating type, in place of zeros

    `ValueError` for limits that are NaN or leave no number, for gradients of integers, and for `noncontiguous` beside a
    `memory_format`; `TypeError` for element types that are not numbers.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    is_inexact = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueRangeError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"noncontiguous={noncontiguous} and memory_format={memory_format}"
        )
    if requires_grad and not is_inexact:
        raise ValueRangeError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}"
        )
    strided = noncontiguous and prod(sizes) > 1
    limits = _limits(low, high, dtype)
    result = _drawn((*sizes[:-1], 2 * sizes[-1]) if strided else sizes, dtype, device, *limits)
    if strided:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = finfo(dtype).tiny if is_inexact else 1
    return result.requires_grad_(requires_grad) if is_inexact else result


def _limits(low: float | None, high: float | None, dtype: DType) -> tuple[float, float]:
    """The limits of a draw, within those of the element type; whole numbers for integers."""
    least, most, default_low, default_high = _range(dtype)
    low = default_low if low is None else low
    high = default_high if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueRangeError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    is_inexact = dtype.is_floating_point or dtype.is_complex
    if low == high and is_inexact:
        warnings.warn(
            "`low==high` in make_tensor is deprecated for floating and complex types; use full()",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueRangeError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= most:
        raise ValueRangeError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
            f"[{least}, {most})"
        )
    low, high = (min(max(limit, least), most) for limit in (low, high))
    return (low, high) if is_inexact else (math.ceil(low), math.ceil(high))


def _range(dtype: DType) -> tuple[float, float, float, float]:
    """The limits of an element type, and those of a draw by default; the upper ones are not reached."""
    if dtype is bool_:
        return 0, 2, 0, 2
    if dtype.is_floating_point or dtype.is_complex:
        return finfo(dtype).min, finfo(dtype).max, -_WIDEST, _WIDEST
    try:
        limits = iinfo(dtype)
    except TypeError as error:
        raise ArgumentError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor()") from error
    return limits.min, limits.max + (dtype is not int64), -_WIDEST, _WIDEST + 1


def _drawn(sizes: Sequence[int], dtype: DType, device: DeviceLike | None, low: float, high: float) -> Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        return randint(int(low), int(high), sizes, dtype=dtype, device=device)
    result = empty(sizes, dtype=dtype, device=device)
    parts = rows.view_as_real(result) if dtype.is_complex else result
    if high - low >= finfo(dtype).max:  # which uniform_ could not take
        parts.uniform_(low / 2, high / 2).mul_(2)
    else:
        parts.uniform_(low, high)
    return result
