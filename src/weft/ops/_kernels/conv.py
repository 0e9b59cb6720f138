"""Convolutions, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np

from weft.errors import ShapeError
from weft.ops._jax import vjp
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._native import Native
from weft.ops._neural import as_ntuple, margins, per_channel
from weft.ops._table import Ints

Pair = tuple[int, int]

_MOST_TAPS = 1024  # of a convolution's kernel


# Arrays are (n, c, h, w) and (o, c, kh, kw); in memory the channels come last, and the weight is (kh, kw, c, o). XLA
# chooses these layouts for the elementwise operations in between, too, but not for sums over all dims but the channels:
# those have to be written over a transposed view.
_IMAGE = (0, 2, 3, 1)
_WEIGHT = (2, 3, 1, 0)


def _convolve(
    name: str,
    arrays: tuple[Array, Array],
    layouts: tuple[Sequence[int], Sequence[int]],
    out: jax.ShapeDtypeStruct,
    out_layout: Sequence[int],
    windows: tuple[Pair, tuple[Pair, Pair], Pair],
) -> Array:
    strides, padding, dilation = windows
    call = jax.ffi.ffi_call(f"weft_{name}", out, input_layouts=layouts, output_layouts=out_layout)
    start = (padding[0][0], padding[1][0])
    words = {"stride": strides, "dilation": dilation, "start": start}
    return call(*arrays, **{word: np.asarray(pair, np.int64) for word, pair in words.items()})


def _conv_shape(
    operation: str,
    x: Sequence[int],
    w: Sequence[int],
    strides: Pair,
    padding: tuple[Pair, Pair],
    dilation: Pair,
) -> tuple[int, ...]:
    """The shape of the result."""
    if len(x) != 4 or len(w) != 4 or x[1] != w[1]:
        raise ShapeError(f"{operation}: expected (n, c, h, w) and (o, c, kh, kw), got {tuple(x)} and {tuple(w)}")
    if min(strides) < 1 or min(dilation) < 1 or min(map(min, padding)) < 0 or not 0 < w[2] * w[3] <= _MOST_TAPS:
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


def conv(x: Array, w: Array, strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)) -> Array:
    """2-D cross-correlation of (n, c, h, w) with (o, c, kh, kw), float32, groups 1.

    `padding` is ((top, bottom), (left, right)), not negative.
    """
    shape = _conv_shape("conv", x.shape, w.shape, strides, padding, dilation)
    require_floats("conv", x, w)
    return _convolve("conv", (x, w), (_IMAGE, _WEIGHT), struct_like(shape, x), _IMAGE, (strides, padding, dilation))


def conv_input_gradient(
    g: Array, w: Array, x_shape: Sequence[int], strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)
) -> Array:
    """The gradient of `conv`'s input, of shape `x_shape`, from that of its result."""
    shape = _conv_shape("conv_input_gradient", x_shape, w.shape, strides, padding, dilation)
    require_shape("conv_input_gradient", "the gradient", g, shape)
    require_floats("conv_input_gradient", g, w)
    out = struct_like(x_shape, g)
    return _convolve("conv_input_gradient", (g, w), (_IMAGE, _WEIGHT), out, _IMAGE, (strides, padding, dilation))


def conv_weight_gradient(
    g: Array, x: Array, w_shape: Sequence[int], strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)
) -> Array:
    """The gradient of `conv`'s weight, of shape `w_shape`, from that of its result."""
    shape = _conv_shape("conv_weight_gradient", x.shape, w_shape, strides, padding, dilation)
    require_shape("conv_weight_gradient", "the gradient", g, shape)
    require_floats("conv_weight_gradient", g, x)
    out = struct_like(w_shape, g)
    return _convolve("conv_weight_gradient", (g, x), (_IMAGE, _IMAGE), out, _WEIGHT, (strides, padding, dilation))


_CHANNELS = 16  # of the input, from which on its gradient is faster than XLA's


def _serves_conv(input: Array, weight: Array, bias: Array | None, *options: Any) -> bool:
    groups = options[-1]
    return groups == 1 and input.ndim == 4 and min(weight.shape) > 0 and is_float32(input, weight, bias)


def _windows(weight: Array, stride: Ints, padding: Any, dilation: Ints) -> Any:
    steps, spread = as_ntuple(stride, 2, "stride"), as_ntuple(dilation, 2, "dilation")
    return steps, tuple(margins(padding, weight.shape[2:], steps, spread)), spread


def _conv(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Any, dilation: Ints, groups: int
) -> Array:
    del groups
    y = conv(input, weight, *_windows(weight, stride, padding, dilation))
    return y if bias is None else y + per_channel(bias, y.ndim)


def _conv_vjp(
    g: Array,
    out: Any,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Any,
    dilation: Ints,
    groups: int,
) -> tuple[Array | None, ...]:
    del out, groups
    windows = _windows(weight, stride, padding, dilation)
    return (
        _input_gradient(g, input, weight, *windows),
        conv_weight_gradient(g, input, weight.shape, *windows),
        None if bias is None else jnp.sum(g, (0, 2, 3)),
    )


def _input_gradient(g: Array, input: Array, weight: Array, steps: Any, pads: Any, spread: Any) -> Array:
    if input.shape[1] >= _CHANNELS:
        return conv_input_gradient(g, weight, input.shape, steps, pads, spread)

    def by_xla(x: Array) -> Array:
        return jax.lax.conv_general_dilated(x, weight, steps, pads, rhs_dilation=spread)

    return vjp(by_xla, input)[1](g)[0]


CONV2D = Native("cpu", _serves_conv, _conv, _conv_vjp)
