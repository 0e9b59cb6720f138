"""Recurrent layers, all steps in one call, by kernels of our own on the CPU."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import jax.ffi
import jax.numpy as jnp

from weft.errors import ShapeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kernels.product import linear, multiplied
from weft.ops._native import Native
from weft.ops._neural import delayed


def lstm(z: Array, h0: Array, c0: Array, wh: Array, reverse: bool = False) -> tuple[Array, Array, Array]:
    """All steps of an LSTM layer: hidden states and cells (time, batch, hidden), and gates (time, batch, 4 hidden).

    z (time, batch, 4 hidden) is the projected input with all biases, h0 and c0 are (batch, hidden), and wh is
    (4 hidden, hidden); gates are ordered input, forget, cell, output. float32.
    """
    if z.ndim != 3:
        raise ShapeError(f"lstm: z has shape {z.shape}, expected (time, batch, 4 hidden)")
    (steps, batch, wide), hidden = z.shape, h0.shape[-1] if h0.ndim else 0
    for name, array, shape in (
        ("z", z, (steps, batch, 4 * hidden)),
        ("h0", h0, (batch, hidden)),
        ("c0", c0, (batch, hidden)),
        ("wh", wh, (4 * hidden, hidden)),
    ):
        require_shape("lstm", name, array, shape)
    require_floats("lstm", z, h0, c0, wh)
    states = struct_like((steps, batch, hidden), z)
    call = jax.ffi.ffi_call("weft_lstm", (states, states, struct_like((steps, batch, wide), z)))
    ys, cells, gates = call(z, h0, c0, wh, reverse=reverse)
    return ys, cells, gates


def lstm_backward(
    g_ys: Array, g_h: Array, g_c: Array, gates: Array, cells: Array, c0: Array, wh: Array, reverse: bool = False
) -> tuple[Array, Array, Array]:
    """The gradients of `lstm`'s z, h0 and c0, from those of its states, its last state and its last cell.

    That of wh is the product of z's, over all steps, with the states before each step.
    """
    (steps, batch, hidden), wide = cells.shape, 4 * cells.shape[-1]
    for name, array, shape in (
        ("g_ys", g_ys, (steps, batch, hidden)),
        ("g_h", g_h, (batch, hidden)),
        ("g_c", g_c, (batch, hidden)),
        ("gates", gates, (steps, batch, wide)),
        ("c0", c0, (batch, hidden)),
        ("wh", wh, (wide, hidden)),
    ):
        require_shape("lstm_backward", name, array, shape)
    require_floats("lstm_backward", g_ys, g_h, g_c, gates, cells, c0, wh)
    outs = (struct_like(gates.shape, gates), struct_like(c0.shape, c0), struct_like(c0.shape, c0))
    call = jax.ffi.ffi_call("weft_lstm_backward", outs)
    dz, dh0, dc0 = call(g_ys, g_h, g_c, gates, cells, c0, wh, reverse=reverse)
    return dz, dh0, dc0


def _serves_lstm(input: Array, *rest: Any) -> bool:
    *arrays, weight_hr, lengths, _ = rest
    return weight_hr is None and lengths is None and min(input.shape) > 0 and is_float32(input, *arrays)


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
    z = linear(input, weight_ih)
    for bias in (bias_ih, bias_hh):
        z = z if bias is None else z + bias
    ys, cells, gates = lstm(z, h0, c0, weight_hh, reverse)
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
    dz, dh, dc = lstm_backward(*g, gates, cells, c0, weight_hh, reverse)
    flat = dz.reshape(-1, dz.shape[-1])
    g_input = multiplied(flat, weight_ih).reshape(input.shape)
    over_all_steps = (input, delayed(ys, h0, reverse))
    g_ih, g_hh = (multiplied(flat, x.reshape(-1, x.shape[-1]), transpose_a=True) for x in over_all_steps)
    g_bias = jnp.sum(flat, 0)
    biases = (None if bias is None else g_bias for bias in (bias_ih, bias_hh))
    return g_input, dh, dc, g_ih, g_hh, *biases, None, None


LSTM = Native("cpu", _serves_lstm, _lstm, _lstm_vjp)
