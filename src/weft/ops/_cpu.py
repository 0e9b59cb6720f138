"""Rows' bodies for the CPU by kernels of our own, and the calls that each serves: where it was measured to win."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from weft.ops import _kernels as kernels
from weft.ops._jax import vjp
from weft.ops._native import Native
from weft.ops._neural import are_heads, as_ntuple, attention_scale, delayed, margins, per_channel
from weft.ops._table import Array, Ints

_LEAST_PRODUCT = 1 << 18  # multiplications; below, a call costs more than it saves
_FEW = 64  # rows of a product that XLA computes on one thread
_LONG = 1024  # sums, as in gradients of weights, for which XLA copies the first factor


def _is_float32(*arrays: Array | None) -> bool:
    return all(x is None or x.dtype == jnp.float32 for x in arrays) and kernels.available()


# --- products -------------------------------------------------------------------------------------------------


def _pays(rows: int, sums: int, columns: int, transposed: bool) -> bool:
    """Whether the kernel is faster than XLA for a product of matrices (rows, sums) and (sums, columns)."""
    if rows * sums * columns < _LEAST_PRODUCT:
        return False
    return sums >= max(_LONG, 2 * rows, 2 * columns) if transposed else rows <= _FEW


def _multiplied(a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """op(a) op(b), by the faster of the two."""
    sums, rows = a.shape[-2:] if transpose_a else a.shape[:-3:-1]
    columns = b.shape[-2 if transpose_b else -1]
    if _pays(rows, sums, columns, transpose_a):
        return kernels.matmul(a, b, transpose_a, transpose_b)
    left = jnp.swapaxes(a, -1, -2) if transpose_a else a
    return jnp.matmul(left, jnp.swapaxes(b, -1, -2) if transpose_b else b)


def _is_served(rows: int, sums: int, columns: int) -> bool:
    """Whether the kernel is faster for the product or for the gradient of its second factor."""
    return _pays(rows, sums, columns, False) or _pays(sums, rows, columns, True)


def _serves_linear(input: Array, weight: Array, bias: Array | None) -> bool:
    if input.ndim < 2 or weight.ndim != 2 or not (bias is None or bias.shape == weight.shape[:1]):
        return False
    columns, sums = weight.shape
    return _is_served(math.prod(input.shape[:-1]), sums, columns) and _is_float32(input, weight, bias)


def _linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    y = _multiplied(input.reshape(-1, input.shape[-1]), weight, transpose_b=True)
    y = y.reshape(*input.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


def _linear_vjp(g: Array, out: Any, input: Array, weight: Array, bias: Array | None) -> tuple[Array | None, ...]:
    del out
    g, x = g.reshape(-1, g.shape[-1]), input.reshape(-1, input.shape[-1])
    g_input = _multiplied(g, weight).reshape(input.shape)
    return g_input, _multiplied(g, x, transpose_a=True), None if bias is None else jnp.sum(g, 0)


def _serves_product(a: Array, b: Array) -> bool:
    if min(a.ndim, b.ndim) < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        return False
    rows, sums = a.shape[-2:]
    return _is_served(rows, sums, b.shape[-1]) and _is_float32(a, b)


def _product(a: Array, b: Array) -> Array:
    return _multiplied(a, b)


def _product_vjp(g: Array, out: Any, a: Array, b: Array) -> tuple[Array, Array]:
    del out
    return _multiplied(g, b, transpose_b=True), _multiplied(a, g, transpose_a=True)


LINEAR = Native("cpu", _serves_linear, _linear, _linear_vjp)
PRODUCT = Native("cpu", _serves_product, _product, _product_vjp)

# --- convolutions ---------------------------------------------------------------------------------------------

_CHANNELS = 16  # of the input, from which on its gradient is faster than XLA's


def _serves_conv(input: Array, weight: Array, bias: Array | None, *options: Any) -> bool:
    groups = options[-1]
    return groups == 1 and input.ndim == 4 and min(weight.shape) > 0 and _is_float32(input, weight, bias)


def _windows(weight: Array, stride: Ints, padding: Any, dilation: Ints) -> Any:
    steps, spread = as_ntuple(stride, 2, "stride"), as_ntuple(dilation, 2, "dilation")
    return steps, tuple(margins(padding, weight.shape[2:], steps, spread)), spread


def _conv(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Any, dilation: Ints, groups: int
) -> Array:
    del groups
    y = kernels.conv(input, weight, *_windows(weight, stride, padding, dilation))
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
        kernels.conv_weight_gradient(g, input, weight.shape, *windows),
        None if bias is None else jnp.sum(g, (0, 2, 3)),
    )


def _input_gradient(g: Array, input: Array, weight: Array, steps: Any, pads: Any, spread: Any) -> Array:
    if input.shape[1] >= _CHANNELS:
        return kernels.conv_input_gradient(g, weight, input.shape, steps, pads, spread)

    def by_xla(x: Array) -> Array:
        return jax.lax.conv_general_dilated(x, weight, steps, pads, rhs_dilation=spread)

    return vjp(by_xla, input)[1](g)[0]


CONV2D = Native("cpu", _serves_conv, _conv, _conv_vjp)

# --- attention ------------------------------------------------------------------------------------------------


def _serves_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None, is_causal: bool, scale: Any, enable_gqa: bool
) -> bool:
    del is_causal, scale
    return attn_mask is None and are_heads(query, key, value, enable_gqa) and _is_float32(query, key, value)


def _attention(
    query: Array, key: Array, value: Array, attn_mask: None, is_causal: bool, scale: float | None, *_: Any
) -> tuple[Array, Array]:
    del attn_mask
    return kernels.attention(query, key, value, is_causal, attention_scale(query, scale))


def _attention_vjp(
    g: Array,
    out: tuple[Array, Array],
    query: Array,
    key: Array,
    value: Array,
    attn_mask: None,
    is_causal: bool,
    scale: float | None,
    *_: Any,
) -> tuple[Array | None, ...]:
    del attn_mask
    factor = attention_scale(query, scale)
    return (*kernels.attention_backward(g, *out, query, key, value, is_causal, factor), None)


ATTENTION = Native("cpu", _serves_attention, _attention, _attention_vjp)

# --- recurrent layers -----------------------------------------------------------------------------------------


def _serves_lstm(input: Array, *rest: Any) -> bool:
    *arrays, weight_hr, lengths, _ = rest
    return weight_hr is None and lengths is None and min(input.shape) > 0 and _is_float32(input, *arrays)


def _lstm(
    input: Array,
    h0: Array,
    c0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    weight_hr: None,
    lengths: None,
    reverse: bool,
) -> tuple[Array, ...]:
    del weight_hr, lengths
    z = _linear(input, weight_ih)
    for bias in (bias_ih, bias_hh):
        z = z if bias is None else z + bias
    ys, cells, gates = kernels.lstm(z, h0, c0, weight_hh, reverse)
    last = 0 if reverse else -1
    return ys, ys[last], cells[last], cells, gates


def _lstm_vjp(
    g: tuple[Array, Array, Array],
    out: tuple[Array, ...],
    input: Array,
    h0: Array,
    c0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    weight_hr: None,
    lengths: None,
    reverse: bool,
) -> tuple[Array | None, ...]:
    del weight_hr, lengths
    ys, _, _, cells, gates = out
    dz, dh, dc = kernels.lstm_backward(*g, gates, cells, c0, weight_hh, reverse)
    flat = dz.reshape(-1, dz.shape[-1])
    g_input = _multiplied(flat, weight_ih).reshape(input.shape)
    over_all_steps = (input, delayed(ys, h0, reverse))
    g_ih, g_hh = (_multiplied(flat, x.reshape(-1, x.shape[-1]), transpose_a=True) for x in over_all_steps)
    g_bias = jnp.sum(flat, 0)
    biases = (None if bias is None else g_bias for bias in (bias_ih, bias_hh))
    return g_input, dh, dc, g_ih, g_hh, *biases, None, None


LSTM = Native("cpu", _serves_lstm, _lstm, _lstm_vjp)
