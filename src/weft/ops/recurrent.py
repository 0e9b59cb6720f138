"""Recurrent layers: one row per layer and direction, and single steps.

One product projects the inputs of all steps before the loop. The loop saves the gates; the derivative loops over them
backwards, and then computes the gradient of each weight by one product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from weft._base.types import PyTree
from weft.errors import DTypeError, ShapeError
from weft.ops._dims import Factors, PartOf, Rule, Sizes, Static
from weft.ops._kernels.recurrent import GRU, LSTM, RNN
from weft.ops._kinds import Array, Arrays
from weft.ops._neural import delayed, has_step, states_before
from weft.ops._reduce import wide
from weft.ops._table import INTERNAL, LOWERED, NO_METHOD, Derivative, defop
from weft.ops._type_names import scalar_name

# --- shared helpers -------------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    """The logistic function. In loops XLA:CPU vectorizes tanh but not exp, so tanh is five times as fast."""
    return 0.5 * jnp.tanh(0.5 * x) + 0.5


_WITH_NAMES = ("input", "h0", "c0", "hx", "lengths")


def _dims(outputs: str, **letters: str) -> Rule:
    """The rule with each parameter's letters, in order; the last ones may be absent. Only the batch may be split.

    Names are those of the input and the states, not those of weights.
    """

    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        present = [
            tuple(term) if name in _WITH_NAMES else tuple(map(PartOf, term))
            for name, terms in letters.items()
            if static.get(name, "") is not None
            for term in terms.split()
        ]
        ins = tuple(present[: len(shapes)])
        outs = tuple(tuple(term) for term in outputs.split())
        return Factors(ins, outs, frozenset("".join([*letters.values(), outputs])) - {"b"})

    return rule


def _select(live: Array | None, x: Array, other: Array | float) -> Array:
    return x if live is None else jnp.where(live, x, other)


def _loop(
    step: Callable[[PyTree, PyTree], PyTree],
    carry: PyTree,
    per_step: tuple[PyTree, ...],
    lengths: Array | None,
    reverse: bool,
) -> PyTree:
    """A scan of `step(carry, (*per_step, live))` over time."""
    live = None if lengths is None else has_step(lengths, len(per_step[0]))
    return jax.lax.scan(step, carry, (*per_step, live), reverse=reverse)


def _check_types(*pairs: tuple[Array, Array]) -> None:
    for x, weight in pairs:
        if x.dtype != weight.dtype:
            raise DTypeError(
                f"mat1 and mat2 must have the same dtype, but got {scalar_name(x)} and {scalar_name(weight)}"
            )


def _projected(input: Array, weight: Array) -> Array:
    return jnp.tensordot(wide(input), wide(weight), ((2,), (1,)))


def _bias(*biases: Array | None) -> Array | float:
    return sum((wide(bias) for bias in biases if bias is not None), 0.0)


def _over_all_steps(dz: Array, xs: Array) -> Array:
    """The gradient of a weight, from the gradients of its products and its inputs at all steps."""
    return jnp.tensordot(dz, wide(xs), ((0, 1), (0, 1)))


def _of_parameters(
    dx: Array, d_hidden: Array, input: Array, before: Array, bias_ih: Array | None, bias_hh: Array | None
) -> tuple[Array | None, ...]:
    """The gradients of weights and biases, from those of the projections of the input and of the states before."""
    biases = (None if bias is None else jnp.sum(dz, (0, 1)) for dz, bias in ((dx, bias_ih), (d_hidden, bias_hh)))
    return _over_all_steps(dx, input), _over_all_steps(d_hidden, before), *biases


def _all_cast(arrays: Sequence[Array | None], like: Array) -> tuple[Array | None, ...]:
    return tuple(None if a is None else a.astype(like.dtype) for a in arrays)


# --- LSTM -----------------------------------------------------------------------------------------------------


def _lstm_step(z: Array, c: Array) -> tuple[Array, Array, Array]:
    """The new hidden state, cell and gates."""
    i, f, g, o = jnp.split(z, 4, axis=-1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), jnp.tanh(g), _sigmoid(o)
    c = f * c + i * g
    return o * jnp.tanh(c), c, jnp.concatenate([i, f, g, o], axis=-1)


def _lstm_step_back(dh: Array, dc: Array, gates: Array, c: Array, before: Array) -> tuple[Array, Array]:
    """Gradients of the four gates' inputs and of the previous cell; `dh` and `dc` are those of the step's results."""
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    t = jnp.tanh(c)
    dc = dc + dh * o * (1 - t * t)
    parts = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)]
    return jnp.concatenate(parts, axis=-1), dc * f


def _lstm_vjp(
    g: Arrays,
    out: Arrays,
    input: Array,
    h0: Array,
    c0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    weight_hr: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array | None, ...]:
    ys, _, _, cells, gates = out
    g_y, g_h, g_c = map(wide, g)
    weight = wide(weight_hh)

    def step(carry: PyTree, at: PyTree) -> PyTree:
        dh, dc = carry
        g_y, gates, c, before, live = at
        dy = _select(live, dh + g_y, 0)
        inner = dy if weight_hr is None else dy @ wide(weight_hr)
        dz, dc_before = _lstm_step_back(inner, _select(live, dc, 0), gates, c, before)
        dh_before = dz @ weight
        if live is not None:  # finished sequences pass their gradients on unchanged
            dh_before, dc_before = dh_before + jnp.where(live, 0, dh), jnp.where(live, dc_before, dc)
        return (dh_before, dc_before), (dz, None if weight_hr is None else dy)

    per_step = (g_y, gates, cells, delayed(cells, wide(c0), reverse))
    (dh, dc), (dz, dy) = _loop(step, (g_h, g_c), per_step, lengths, not reverse)
    g_hr = None
    if weight_hr is not None:
        g_hr = _over_all_steps(dy, gates[..., -cells.shape[-1] :] * jnp.tanh(cells))
    before = states_before(wide(ys), wide(h0), lengths, reverse)
    parameters = _of_parameters(dz, dz, input, before, bias_ih, bias_hh)
    return (*_all_cast((dz @ wide(weight_ih), dh, dc, *parameters, g_hr), input), None)


@defop(
    dims=_dims(
        "tbp bp bh",
        input="tbi",
        h0="bp",
        c0="bh",
        weight_ih="zi",
        weight_hh="zp",
        bias_ih="z",
        bias_hh="z",
        weight_hr="ph",
        lengths="b",
    ),
    types=LOWERED,
    derivative=Derivative(vjp=_lstm_vjp, aux=2),
    public=INTERNAL,
    native=[LSTM],
)
def lstm_layer(
    input: Array,
    h0: Array,
    c0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    weight_hr: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array, ...]:
    """Hidden states of all steps (time, batch, hidden), then the last hidden state and cell (batch, hidden).

    `weight_hr` projects hidden states (Sak et al., https://arxiv.org/abs/1402.1128). A sequence ends at its length:
    from there on its states do not change, and the hidden states in the first output are 0. In reverse it starts there.
    Further outputs are the cells and the gates.
    """
    _check_types((input, weight_ih), (h0, weight_hh), (c0, weight_hh))
    bias, weight = _bias(bias_ih, bias_hh), wide(weight_hh).T

    def step(carry: PyTree, at: PyTree) -> PyTree:
        h, c = carry
        # The products with the input are made for all steps at once, before the loop.
        z, live = at
        y, cell, gates = _lstm_step(z + h @ weight + bias, c)
        if weight_hr is not None:
            y = y @ wide(weight_hr).T
        # A sequence that has ended keeps its state, so that the last one is that of its own end.
        h, c = _select(live, y, h), _select(live, cell, c)
        return (h, c), (_select(live, y, 0), c, gates)

    start = (wide(h0), wide(c0))
    (h, c), (ys, cells, gates) = _loop(step, start, (_projected(input, weight_ih),), lengths, reverse)
    return *(x.astype(input.dtype) for x in (ys, h, c)), cells, gates


# --- GRU ------------------------------------------------------------------------------------------------------


def _gru_step(x: Array, hidden: Array, h: Array) -> tuple[Array, Array, Array]:
    """The new state, the gates, and the state's part in the candidate; both projections include their biases."""
    size = h.shape[-1]
    r, z = jnp.split(_sigmoid(x[..., : 2 * size] + hidden[..., : 2 * size]), 2, axis=-1)
    inner = hidden[..., 2 * size :]
    n = jnp.tanh(x[..., 2 * size :] + r * inner)
    return n + z * (h - n), jnp.concatenate([r, z, n], axis=-1), inner


def _gru_vjp(
    g: Arrays,
    out: Arrays,
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array | None, ...]:
    ys, _, gates, inner = out
    g_y, g_h = map(wide, g)
    weight = wide(weight_hh)

    def step(dh: Array, at: PyTree) -> PyTree:
        g_y, gates, inner, before, live = at
        r, z, n = jnp.split(gates, 3, axis=-1)
        dy = _select(live, dh + g_y, 0)
        dn = dy * (1 - z) * (1 - n * n)
        both = [dn * inner * r * (1 - r), dy * (before - n) * z * (1 - z)]
        d_hidden = jnp.concatenate([*both, dn * r], axis=-1)
        dh = dy * z + d_hidden @ weight + (0 if live is None else jnp.where(live, 0, dh))
        return dh, (jnp.concatenate([*both, dn], axis=-1), d_hidden)

    before = states_before(wide(ys), wide(h0), lengths, reverse)
    dh, (dx, d_hidden) = _loop(step, g_h, (g_y, gates, inner, before), lengths, not reverse)
    parameters = _of_parameters(dx, d_hidden, input, before, bias_ih, bias_hh)
    return (*_all_cast((dx @ wide(weight_ih), dh, *parameters), input), None)


_ONE_STATE = {
    "input": "tbi",
    "h0": "bh",
    "weight_ih": "zi",
    "weight_hh": "zh",
    "bias_ih": "z",
    "bias_hh": "z",
    "lengths": "b",
}


@defop(
    dims=_dims("tbh bh", **_ONE_STATE),
    types=LOWERED,
    derivative=Derivative(vjp=_gru_vjp, aux=2),
    public=INTERNAL,
    native=[GRU],
)
def gru_layer(
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
) -> tuple[Array, ...]:
    """States of all steps (time, batch, hidden), and the last (batch, hidden); lengths as in `lstm_layer`.

    The reset gate scales the projected state. Further outputs are the gates and the state's part in the candidate.
    """
    _check_types((input, weight_ih), (h0, weight_hh))
    x_bias, bias, weight = _bias(bias_ih), _bias(bias_hh), wide(weight_hh).T

    def step(h: Array, at: PyTree) -> PyTree:
        x, live = at
        y, gates, inner = _gru_step(x + x_bias, h @ weight + bias, h)
        return _select(live, y, h), (_select(live, y, 0), gates, inner)

    h, (ys, gates, inner) = _loop(step, wide(h0), (_projected(input, weight_ih),), lengths, reverse)
    return ys.astype(input.dtype), h.astype(input.dtype), gates, inner


# --- plain RNN ------------------------------------------------------------------------------------------------


def _activated(z: Array, relu: bool) -> Array:
    return jax.nn.relu(z) if relu else jnp.tanh(z)


def _rnn_vjp(
    g: Arrays,
    out: Arrays,
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
    relu: bool = False,
) -> tuple[Array | None, ...]:
    ys = out[0]
    g_y, g_h = map(wide, g)
    weight = wide(weight_hh)

    def step(dh: Array, at: PyTree) -> PyTree:
        g_y, y, live = at
        dy = _select(live, dh + g_y, 0)
        dz = jnp.where(y > 0, dy, 0) if relu else dy * (1 - y * y)
        return dz @ weight + (0 if live is None else jnp.where(live, 0, dh)), dz

    dh, dz = _loop(step, g_h, (g_y, wide(ys)), lengths, not reverse)
    before = states_before(wide(ys), wide(h0), lengths, reverse)
    parameters = _of_parameters(dz, dz, input, before, bias_ih, bias_hh)
    return (*_all_cast((dz @ wide(weight_ih), dh, *parameters), input), None)


@defop(
    dims=_dims("tbh bh", **_ONE_STATE),
    types=LOWERED,
    derivative=Derivative(vjp=_rnn_vjp),
    public=INTERNAL,
    native=[RNN],
)
def rnn_layer(
    input: Array,
    h0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    lengths: Array | None = None,
    reverse: bool = False,
    relu: bool = False,
) -> tuple[Array, Array]:
    """States of all steps (time, batch, hidden), and the last (batch, hidden); lengths as in `lstm_layer`."""
    _check_types((input, weight_ih), (h0, weight_hh))
    bias, weight = _bias(bias_ih, bias_hh), wide(weight_hh).T

    def step(h: Array, at: PyTree) -> PyTree:
        z, live = at
        y = _activated(z + h @ weight + bias, relu)
        return _select(live, y, h), _select(live, y, 0)

    h, ys = _loop(step, wide(h0), (_projected(input, weight_ih),), lengths, reverse)
    return ys.astype(input.dtype), h.astype(input.dtype)


# --- single steps ---------------------------------------------------------------------------------------------


def _check_step(input: Array, states: Sequence[Array], weight_ih: Array, weight_hh: Array) -> None:
    if input.shape[1] != weight_ih.shape[1]:
        raise ShapeError(f"input has inconsistent input_size: got {input.shape[1]} expected {weight_ih.shape[1]}")
    _check_types((input, weight_ih), *((h, weight_hh) for h in states))
    for number, h in enumerate(states):
        if input.shape[0] != h.shape[0]:
            raise ShapeError(f"Input batch size {input.shape[0]} doesn't match hidden{number} batch size {h.shape[0]}")
        if h.shape[1] != weight_hh.shape[1]:
            raise ShapeError(
                f"hidden{number} has inconsistent hidden_size: got {h.shape[1]}, expected {weight_hh.shape[1]}"
            )


def _projections(
    x: Array, weight_ih: Array, bias_ih: Array | None, h: Array, weight_hh: Array, bias_hh: Array | None
) -> tuple[Array, Array]:
    """The projections of the input and of the state."""
    return (
        wide(x) @ wide(weight_ih).T + _bias(bias_ih),
        wide(h) @ wide(weight_hh).T + _bias(bias_hh),
    )


_STEP = {"w_ih": "zi", "w_hh": "zh", "b_ih": "z", "b_hh": "z"}


@defop(dims=_dims("bh bh", input="bi", hx="bh bh", **_STEP), types=LOWERED, public=NO_METHOD)
def lstm_cell(
    input: Array, hx: Arrays, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None
) -> tuple[Array, Array]:
    """One step of an LSTM, from (batch, features) and two states (batch, hidden) to the two new states."""
    _check_step(input, hx, w_ih, w_hh)
    x, hidden = _projections(input, w_ih, b_ih, hx[0], w_hh, b_hh)
    h, c, _ = _lstm_step(x + hidden, wide(hx[1]))
    return h.astype(input.dtype), c.astype(input.dtype)


@defop(dims=_dims("bh", input="bi", hx="bh", **_STEP), types=LOWERED, public=NO_METHOD)
def gru_cell(
    input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None
) -> Array:
    """One step of a GRU, from (batch, features) and the state (batch, hidden) to the new state."""
    _check_step(input, (hx,), w_ih, w_hh)
    x, hidden = _projections(input, w_ih, b_ih, hx, w_hh, b_hh)
    return _gru_step(x, hidden, wide(hx))[0].astype(input.dtype)


def _rnn_cell(relu: bool, word: str) -> Callable[..., Array]:
    def cell(
        input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None
    ) -> Array:
        _check_step(input, (hx,), w_ih, w_hh)
        x, hidden = _projections(input, w_ih, b_ih, hx, w_hh, b_hh)
        return _activated(x + hidden, relu).astype(input.dtype)

    cell.__doc__ = f"One step of a plain RNN with {word}: (batch, features) and the state (batch, hidden)."
    return cell


for _name, _relu, _word in (("rnn_tanh_cell", False, "tanh"), ("rnn_relu_cell", True, "ReLU")):
    defop(_name, dims=_dims("bh", input="bi", hx="bh", **_STEP), types=LOWERED, public=NO_METHOD)(
        _rnn_cell(_relu, _word)
    )
