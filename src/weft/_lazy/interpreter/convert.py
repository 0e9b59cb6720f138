"""Conversions between element types."""

from __future__ import annotations

from operator import methodcaller

import numpy as np

from weft._lazy.interpreter.table import Array, Params, Types, Unary, is_float, is_integer, primitive, wide


@primitive("convert_element_type", broadcasts=True)
def _convert(params: Params, ins: Types, outs: Types) -> Unary:
    source, target = ins[0].dtype, outs[0].dtype
    if is_float(source) and is_integer(target):
        return lambda x: _saturated(wide(x), target)
    if target.kind == "b":
        return lambda x: np.not_equal(x, np.zeros((), source))
    if source.kind == "c" and target.kind != "c":
        return lambda x: np.real(x).astype(target)
    return methodcaller("astype", target)


def _saturated(x: Array, target: np.dtype) -> Array:
    """Floats rounded towards zero to integers, clamped to the range of the type `target`; NaN becomes 0."""
    bounds = np.iinfo(target)
    low, high = x.dtype.type(bounds.min), x.dtype.type(bounds.max + 1)
    is_high, is_low = x >= high, x <= low
    inside = np.where(is_high | is_low | np.isnan(x), 0, x).astype(target)
    return np.where(is_high, target.type(bounds.max), np.where(is_low, target.type(bounds.min), inside))


@primitive("bitcast_convert_type", view=True)
def _bitcast(params: Params, ins: Types, outs: Types) -> Unary:
    (_, source), (shape, target) = ins[0], outs[0]
    if source.itemsize == target.itemsize:
        return methodcaller("view", target)
    if source.itemsize > target.itemsize:  # the parts of each element become a new last dim
        return lambda x: np.ascontiguousarray(x)[..., None].view(target).reshape(shape)
    return lambda x: np.ascontiguousarray(x).view(target).reshape(shape)


@primitive("reduce_precision", broadcasts=True)
def _reduce_precision(params: Params, ins: Types, outs: Types) -> Unary:
    dtype = outs[0].dtype
    exponent_bits, mantissa_bits = params["exponent_bits"], params["mantissa_bits"]
    return lambda x: _reduced(wide(x), exponent_bits, mantissa_bits).astype(dtype)


def _reduced(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Floats rounded to a format with these numbers of bits, ties to even.

    Numbers below its normal range become zero, numbers above it infinite.
    """
    width = 8 * x.dtype.itemsize
    bits = np.dtype(f"u{x.dtype.itemsize}")
    mantissa = np.finfo(x.dtype).nmant
    n, one = x.view(bits), bits.type(1)
    if mantissa_bits < mantissa:
        dropped = bits.type(mantissa - mantissa_bits)
        half = (one << (dropped - one)) - one
        n = (n + half + ((n >> dropped) & one)) & ~((one << dropped) - one)
    exponent = width - 1 - mantissa
    if exponent_bits < exponent:
        infinite = bits.type(((1 << exponent) - 1) << mantissa)
        bias, reach = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        size, sign = n & infinite, n & (one << bits.type(width - 1))
        n = np.where(size > bits.type((bias + reach) << mantissa), sign | infinite, n)
        n = np.where(size <= bits.type((bias - reach) << mantissa), sign, n)
    return np.where(np.isnan(x), x, n.view(x.dtype))
