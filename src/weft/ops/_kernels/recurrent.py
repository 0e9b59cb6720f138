"""Recurrent layers, all steps in one call, by kernels of our own on the CPU.

Arrays are float32. The projected inputs `z` are (time, batch, gates * hidden), states (batch, hidden), and the weight
`wh` is (gates * hidden, hidden). A sequence ends at its length, if there are `lengths` (batch): from there on its
states do not change, its outputs and gates are 0, and its cells are the last. In `reverse` it starts there.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.ffi
import jax.numpy as jnp

from weft._base.types import Arg
from weft.errors import ShapeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kernels.product import linear, multiplied
from weft.ops._native import Native
from weft.ops._neural import states_before


def _call(
    operation: str,
    gates: int,
    arrays: Mapping[str, tuple[str, Array]],
    outs: str,
    lengths: Array | None,
    **options: bool,
) -> tuple[Array, ...]:
    """The results of a kernel. Its arrays come with the letters of their dims, and `outs` has those of the results.

    Letters are: s steps, b batch, h hidden, w gates * hidden. The first array has "sbw" or "sbh".
    """
    letters, first = next(iter(arrays.values()))
    if first.ndim != 3:
        raise ShapeError(f"{operation}: expected (time, batch, features), got {first.shape}")
    steps, batch, width = first.shape
    hidden = width if letters == "sbh" else width // gates
    sizes = {"s": steps, "b": batch, "h": hidden, "w": gates * hidden}

    def shape(letters: str) -> tuple[int, ...]:
        return tuple(sizes[letter] for letter in letters)

    if lengths is None:
        # One kernel serves both: sequences of one length are those that all end at the last step.
        lengths = jnp.full(batch, steps)
    require_shape(operation, "lengths", lengths, (batch,))
    for name, (letters, array) in arrays.items():
        require_shape(operation, name, array, shape(letters))
        require_floats(operation, array)
    call = jax.ffi.ffi_call(f"weft_{operation}", [struct_like(shape(letters), first) for letters in outs.split()])
    return tuple(call(lengths.astype(jnp.int64), *(array for _, array in arrays.values()), **options))


def lstm(
    z: Array, h0: Array, c0: Array, wh: Array, lengths: Array | None = None, reverse: bool = False
) -> tuple[Array, ...]:
    """The outputs of an LSTM layer at all steps, its last state and cell, and the cells and gates of all steps.

    Gates are ordered input, forget, cell, output; `z` has all biases.
    """
    arrays = {"z": ("sbw", z), "h0": ("bh", h0), "c0": ("bh", c0), "wh": ("wh", wh)}
    return _call("lstm", 4, arrays, "sbh bh bh sbh sbw", lengths, reverse=reverse)


def lstm_backward(
    g_ys: Array,
    g_h: Array,
    g_c: Array,
    gates: Array,
    cells: Array,
    c0: Array,
    wh: Array,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array, ...]:
    """The gradients of `lstm`'s z, h0 and c0, from those of its outputs, last state and last cell.

    That of wh is the product of z's, over all steps, with the states before each step.
    """
    arrays = {
        "g_ys": ("sbh", g_ys), "g_h": ("bh", g_h), "g_c": ("bh", g_c),
        "gates": ("sbw", gates), "cells": ("sbh", cells), "c0": ("bh", c0), "wh": ("wh", wh),
    }  # fmt: skip
    return _call("lstm_backward", 4, arrays, "sbw bh bh", lengths, reverse=reverse)


def gru(
    z: Array, h0: Array, wh: Array, bias: Array, lengths: Array | None = None, reverse: bool = False
) -> tuple[Array, ...]:
    """The outputs of a GRU layer at all steps, its last state, and the gates and inner parts of all steps.

    Gates are ordered reset, update, candidate. The inner part is the state's in the candidate, which the reset gate
    scales. `z` has the bias of the inputs alone; that of the states, `bias`, is (3 hidden).
    """
    arrays = {"z": ("sbw", z), "h0": ("bh", h0), "wh": ("wh", wh), "bias": ("w", bias)}
    return _call("gru", 3, arrays, "sbh bh sbw sbh", lengths, reverse=reverse)


def gru_backward(
    g_ys: Array,
    g_h: Array,
    gates: Array,
    inner: Array,
    before: Array,
    wh: Array,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array, ...]:
    """The gradients of `gru`'s z, of the projected states and of h0, from those of its outputs and its last state.

    `before` has the states before each step (time, batch, hidden). The gradient of wh is the product of the projected
    states', over all steps, with them.
    """
    arrays = {
        "g_ys": ("sbh", g_ys), "g_h": ("bh", g_h),
        "gates": ("sbw", gates), "inner": ("sbh", inner), "before": ("sbh", before), "wh": ("wh", wh),
    }  # fmt: skip
    return _call("gru_backward", 3, arrays, "sbw sbw bh", lengths, reverse=reverse)


def rnn(
    z: Array, h0: Array, wh: Array, lengths: Array | None = None, reverse: bool = False, relu: bool = False
) -> tuple[Array, ...]:
    """The outputs of a plain recurrent layer, with tanh or ReLU, at all steps, and its last state."""
    arrays = {"z": ("sbw", z), "h0": ("bh", h0), "wh": ("wh", wh)}
    return _call("rnn", 1, arrays, "sbh bh", lengths, reverse=reverse, relu=relu)


def rnn_backward(
    g_ys: Array,
    g_h: Array,
    ys: Array,
    wh: Array,
    lengths: Array | None = None,
    reverse: bool = False,
    relu: bool = False,
) -> tuple[Array, ...]:
    """The gradients of `rnn`'s z and h0, from those of its outputs `ys` and its last state; that of wh as of `lstm`."""
    arrays = {"g_ys": ("sbh", g_ys), "g_h": ("bh", g_h), "ys": ("sbh", ys), "wh": ("wh", wh)}
    return _call("rnn_backward", 1, arrays, "sbw bh", lengths, reverse=reverse, relu=relu)


# --- bodies of rows -------------------------------------------------------------------------------------------


def _serves(input: Array, *arrays: Array | None) -> bool:
    return min(input.shape) > 0 and is_float32(input, *arrays)


def _projected(input: Array, weight: Array, *biases: Array | None) -> Array:
    terms = [bias for bias in biases if bias is not None]
    return linear(input, weight, sum(terms[1:], terms[0]) if terms else None)


def _gradients(
    dz: Array, dsums: Array, input: Array, before: Array, weight_ih: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The gradients of input, weights and biases, from those of the projected input and of the projected states."""
    flat, flat_sums = (d.reshape(-1, d.shape[-1]) for d in (dz, dsums))
    g_ih = multiplied(flat, input.reshape(-1, input.shape[-1]), transpose_a=True)
    g_hh = multiplied(flat_sums, before.reshape(-1, before.shape[-1]), transpose_a=True)
    return (
        multiplied(flat, weight_ih).reshape(input.shape),
        g_ih,
        g_hh,
        jnp.sum(flat, 0),
        jnp.sum(flat_sums, 0),
    )


def _if_present(gradient: Array, parameter: Array | None) -> Array | None:
    return None if parameter is None else gradient


def _serves_lstm(input: Array, *rest: Arg) -> bool:
    *arrays, weight_hr, _, _ = rest
    return weight_hr is None and _serves(input, *arrays)


def _lstm(
    input: Array,
    h0: Array,
    c0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array, ...]:
    return lstm(_projected(input, weight_ih, bias_ih, bias_hh), h0, c0, weight_hh, lengths, reverse)


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
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array | None, ...]:
    ys, _, _, cells, gates = out
    dz, dh, dc = lstm_backward(*g, gates, cells, c0, weight_hh, lengths, reverse)
    before = states_before(ys, h0, lengths, reverse)
    dx, g_ih, g_hh, g_bias, _ = _gradients(dz, dz, input, before, weight_ih)
    biases = (_if_present(g_bias, bias) for bias in (bias_ih, bias_hh))
    return dx, dh, dc, g_ih, g_hh, *biases, None, None


def _serves_gru(input: Array, *rest: Arg) -> bool:
    return _serves(input, *rest[:-2])


def _gru(
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array, ...]:
    bias = jnp.zeros(len(weight_hh), jnp.float32) if bias_hh is None else bias_hh
    return gru(_projected(input, weight_ih, bias_ih), h0, weight_hh, bias, lengths, reverse)


def _gru_vjp(
    g: tuple[Array, Array],
    out: tuple[Array, ...],
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array | None, ...]:
    ys, _, gates, inner = out
    before = states_before(ys, h0, lengths, reverse)
    dz, dsums, dh = gru_backward(*g, gates, inner, before, weight_hh, lengths, reverse)
    dx, g_ih, g_hh, g_b_ih, g_b_hh = _gradients(dz, dsums, input, before, weight_ih)
    return dx, dh, g_ih, g_hh, _if_present(g_b_ih, bias_ih), _if_present(g_b_hh, bias_hh), None


def _serves_rnn(input: Array, *rest: Arg) -> bool:
    return _serves(input, *rest[:-3])


def _rnn(
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    lengths: Array | None,
    reverse: bool,
    relu: bool,
) -> tuple[Array, ...]:
    return rnn(_projected(input, weight_ih, bias_ih, bias_hh), h0, weight_hh, lengths, reverse, relu)


def _rnn_vjp(
    g: tuple[Array, Array],
    out: tuple[Array, ...],
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    lengths: Array | None,
    reverse: bool,
    relu: bool,
) -> tuple[Array | None, ...]:
    ys, _ = out
    dz, dh = rnn_backward(*g, ys, weight_hh, lengths, reverse, relu)
    dx, g_ih, g_hh, g_bias, _ = _gradients(dz, dz, input, states_before(ys, h0, lengths, reverse), weight_ih)
    return dx, dh, g_ih, g_hh, *(_if_present(g_bias, bias) for bias in (bias_ih, bias_hh)), None


LSTM = Native("cpu", _serves_lstm, _lstm, _lstm_vjp)
GRU = Native("cpu", _serves_gru, _gru, _gru_vjp)
RNN = Native("cpu", _serves_rnn, _rnn, _rnn_vjp)
