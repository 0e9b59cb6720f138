"""Stacks of recurrent layers, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft._base.types import Arg, Args
from weft._tensor import packing
from weft._tensor.codegen import op
from weft._tensor.composite.neural import dropout as drop
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError
from weft.ops._table import NO_METHOD

Tensors = tuple[Tensor, ...]
Row = Callable[..., Tensors]

ROWS: dict[str, Row] = {
    "LSTM": op.lstm_layer,
    "GRU": op.gru_layer,
    "RNN_TANH": op.rnn_layer,
    "RNN_RELU": partial(op.rnn_layer, relu=True),
}
"""The row for the layers of each kind of network."""


def run(
    kind: str,
    input: Arg,
    states: Sequence[Arg],
    weights: Sequence[Sequence[Arg]],
    *,
    bidirectional: bool,
    dropout: float = 0.0,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensors]:
    """Run (time, batch, features) and states (layers * directions, batch, size); returns outputs and last states.

    `weights` has, for each layer and direction: the weights of input and state, their biases, and for an LSTM the
    weight of the projection; all but the first two may be None. Outputs beyond the `lengths` of the sequences are 0.
    """
    if not input.shape[0]:
        raise ShapeError("Expected sequence length to be larger than 0 in RNN")
    directions = 2 if bidirectional else 1
    last: list[Tensors] = []
    for at in range(0, len(weights), directions):
        if at and dropout:
            input = drop(input, dropout)
        outputs: list[Tensor] = []
        for direction in range(directions):
            start = (state[at + direction] for state in states)
            y, *end = ROWS[kind](input, *start, *weights[at + direction], lengths=lengths, reverse=direction == 1)
            outputs.append(y)
            last.append(tuple(end))
        input = op.cat(outputs, 2) if bidirectional else outputs[0]
    return input, tuple(op.stack(list(parts)) for parts in zip(*last, strict=True))


def _grouped(kind: str, params: Sequence[Arg], states: Sequence[Arg], has_biases: bool, count: int) -> list[Args]:
    """A flat list of parameters, grouped by layer and direction, as the row takes them."""
    projected = kind == "LSTM" and states[0].shape[2] != states[1].shape[2]
    size = 2 + 2 * has_biases + projected
    if len(params) != count * size:
        raise ShapeError(
            f"{kind}: expected {count} x {size} parameters, one group per layer and direction, but got {len(params)}"
        )
    groups = [tuple(params[at : at + size]) for at in range(0, len(params), size)]
    if projected and not has_biases:
        return [(*group[:2], None, None, group[2]) for group in groups]
    return groups


def _states(kind: str, hx: Arg) -> Args:
    states = tuple(hx) if kind == "LSTM" else (hx,)
    if kind == "LSTM" and len(states) != 2:
        raise ShapeError("lstm expects two hidden states")
    return states


def _of_padded(
    kind: str,
    input: Arg,
    hx: Arg,
    params: Sequence[Arg],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tensors:
    states = _states(kind, hx)
    weights = _grouped(kind, params, states, has_biases, num_layers * (1 + bidirectional))
    padded = input.transpose(0, 1) if batch_first else input
    output, ends = run(kind, padded, states, weights, bidirectional=bidirectional, dropout=dropout if train else 0.0)
    return op.transpose(output, 0, 1) if batch_first else output, *ends


def _of_packed(
    kind: str,
    data: Arg,
    batch_sizes: Arg,
    hx: Arg,
    params: Sequence[Arg],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tensors:
    sizes, states = batch_sizes._host(), _states(kind, hx)
    weights = _grouped(kind, params, states, has_biases, num_layers * (1 + bidirectional))
    output, ends = run(
        kind,
        packing.unpack(data, sizes),
        states,
        weights,
        bidirectional=bidirectional,
        dropout=dropout if train else 0.0,
        lengths=packing.lengths_on_device_of(batch_sizes, data),
    )
    return packing.pack(output, sizes), *ends


def _stack(kind: str, name: str, hx: str) -> None:
    at = 1 if kind == "LSTM" else 2  # where only calls with packed sequences have a tensor

    @composite(
        name,
        doc=f"""All layers of a network: its outputs and last states.

    Takes (input, {hx}, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or, for packed
    sequences, (data, batch_sizes, {hx}, params, has_biases, num_layers, dropout, train, bidirectional).
    """,
        public=NO_METHOD,
    )
    def stack(*args: Arg, **kwargs: Arg) -> Tensors:
        packed = "batch_sizes" in kwargs or (len(args) > at and isinstance(args[at], Tensor))
        return (_of_packed if packed else _of_padded)(kind, *args, **kwargs)


_stack("LSTM", "lstm", "(h_0, c_0)")
_stack("GRU", "gru", "h_0")
_stack("RNN_TANH", "rnn_tanh", "h_0")
_stack("RNN_RELU", "rnn_relu", "h_0")
