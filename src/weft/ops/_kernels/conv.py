"""Convolutions of one to three spatial dims, with groups, by kernels of our own on the CPU.

The kernels read and write arrays with channels first, and turn the parts that they work on in cache: so nothing around
them has to change its layout.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.ffi
import numpy as np

from weft._base.types import Arg
from weft.errors import ShapeError
from weft.ops._kernels.channels import channel_sums
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kinds import Ints, Padding
from weft.ops._native import Native
from weft.ops._neural import as_ntuple, margins, per_channel

Sizes = Sequence[int]
Pads = Sequence[tuple[int, int]]

_MOST_TAPS = 1024  # of a convolution's kernel


def _convolve(
    name: str, arrays: tuple[Array, Array], shape: Sizes, strides: Sizes, padding: Pads, dilation: Sizes
) -> Array:
    call = jax.ffi.ffi_call(f"weft_{name}", struct_like(shape, arrays[0]))
    words = {"stride": strides, "dilation": dilation, "start": [before for before, _ in padding]}
    return call(*arrays, **{word: np.asarray(sizes, np.int64) for word, sizes in words.items()})


def _conv_shape(operation: str, x: Sizes, w: Sizes, strides: Sizes, padding: Pads, dilation: Sizes) -> tuple[int, ...]:
    """The shape of the result."""
    groups = x[1] // w[1] if len(x) > 1 and len(w) > 1 and w[1] else 1
    if len(x) not in (3, 4, 5) or len(w) != len(x) or x[1] != groups * w[1] or w[0] % max(1, groups):
        raise ShapeError(f"{operation}: expected (n, c, …) and (o, c / groups, …), got {tuple(x)} and {tuple(w)}")
    if min(*strides, *dilation) < 1 or min(map(min, padding)) < 0 or not 0 < math.prod(w[2:]) <= _MOST_TAPS:
        raise ShapeError(
            f"{operation}: strides {strides} and dilation {dilation} must be positive, padding {padding} must not be "
            f"negative, and the kernel {tuple(w[2:])} must have 1 to {_MOST_TAPS} elements"
        )
    spans = [(size - 1) * step + 1 for size, step in zip(w[2:], dilation, strict=True)]
    sizes = [
        max(0, (size + sum(pads) - span) // step + 1)
        for size, pads, span, step in zip(x[2:], padding, spans, strides, strict=True)
    ]
    return (x[0], w[0], *sizes)


def conv(x: Array, w: Array, strides: Sizes, padding: Pads, dilation: Sizes) -> Array:
    """Cross-correlation of (n, c, …) with (o, c / groups, …), float32, over one to three spatial dims.

    `padding` has two sizes for each of these, before and after; none is negative.
    """
    shape = _conv_shape("conv", x.shape, w.shape, strides, padding, dilation)
    require_floats("conv", x, w)
    return _convolve("conv", (x, w), shape, strides, padding, dilation)


def conv_input_gradient(g: Array, w: Array, x_shape: Sizes, strides: Sizes, padding: Pads, dilation: Sizes) -> Array:
    """The gradient of `conv`'s input, of shape `x_shape`, from that of its result."""
    shape = _conv_shape("conv_input_gradient", x_shape, w.shape, strides, padding, dilation)
    require_shape("conv_input_gradient", "the gradient", g, shape)
    require_floats("conv_input_gradient", g, w)
    return _convolve("conv_input_gradient", (g, w), x_shape, strides, padding, dilation)


def conv_weight_gradient(g: Array, x: Array, w_shape: Sizes, strides: Sizes, padding: Pads, dilation: Sizes) -> Array:
    """The gradient of `conv`'s weight, of shape `w_shape`, from that of its result."""
    shape = _conv_shape("conv_weight_gradient", x.shape, w_shape, strides, padding, dilation)
    require_shape("conv_weight_gradient", "the gradient", g, shape)
    require_floats("conv_weight_gradient", g, x)
    return _convolve("conv_weight_gradient", (g, x), w_shape, strides, padding, dilation)


def _is_served(input: Array, weight: Array, bias: Array | None) -> bool:
    """Whether the kernels compute this: one kernel for a batch of inputs."""
    whole = weight.ndim > 2 and input.ndim == weight.ndim and min(weight.shape) > 0
    return whole and math.prod(weight.shape[2:]) <= _MOST_TAPS and is_float32(input, weight, bias)


def _plus_bias(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + per_channel(bias, y.ndim)


def _bias_gradient(g: Array, bias: Array | None) -> Array | None:
    return None if bias is None else channel_sums(g)


def _windows(weight: Array, stride: Ints, padding: Padding, dilation: Ints) -> tuple[Sizes, Pads, Sizes]:
    n = weight.ndim - 2
    steps, spread = as_ntuple(stride, n, "stride"), as_ntuple(dilation, n, "dilation")
    return steps, margins(padding, weight.shape[2:], steps, spread), spread


def _serves_conv(input: Array, weight: Array, bias: Array | None, *options: Arg) -> bool:
    del options
    return _is_served(input, weight, bias)


def _conv(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> Array:
    del groups
    return _plus_bias(conv(input, weight, *_windows(weight, stride, padding, dilation)), bias)


def _conv_vjp(
    g: Array, input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Padding, dilation: Ints
) -> tuple[Array | None, ...]:
    windows = _windows(weight, stride, padding, dilation)
    return (
        conv_input_gradient(g, weight, input.shape, *windows),
        conv_weight_gradient(g, input, weight.shape, *windows),
        _bias_gradient(g, bias),
    )


CONV = Native("cpu", _serves_conv, _conv, _conv_vjp)


def _transposed_windows(
    input: Array, weight: Array, stride: Ints, padding: Ints, extra: Ints, dilation: Ints
) -> tuple[Sizes, tuple[Sizes, Pads, Sizes]]:
    """Sizes of a transposed convolution's result, and the windows of the convolution whose gradient it is."""
    n = weight.ndim - 2
    steps, pads, spread = _windows(weight, stride, padding, dilation)
    ends = as_ntuple(extra, n, "output_padding")
    sizes = [
        (size - 1) * step - sum(pad) + space * (k - 1) + 1 + end
        for size, step, pad, space, k, end in zip(
            input.shape[2:], steps, pads, spread, weight.shape[2:], ends, strict=True
        )
    ]
    return sizes, (steps, pads, spread)


def _serves_transposed(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, extra: Ints, *options: Arg
) -> bool:
    del padding, options
    n = weight.ndim - 2
    # the elements that `output_padding` adds belong to no further window
    inside = all(map(int.__lt__, as_ntuple(extra, n, "output_padding"), as_ntuple(stride, n, "stride")))
    return inside and _is_served(input, weight, bias)


def _transposed(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Array:
    sizes, windows = _transposed_windows(input, weight, stride, padding, output_padding, dilation)
    shape = (input.shape[0], groups * weight.shape[1], *sizes)
    return _plus_bias(conv_input_gradient(input, weight, shape, *windows), bias)


def _transposed_vjp(
    g: Array,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
) -> tuple[Array | None, ...]:
    _, windows = _transposed_windows(input, weight, stride, padding, output_padding, dilation)
    return (
        conv(g, weight, *windows),
        conv_weight_gradient(input, g, weight.shape, *windows),
        _bias_gradient(g, bias),
    )


CONV_TRANSPOSE = Native("cpu", _serves_transposed, _transposed, _transposed_vjp)
