"""Single steps of recurrent networks."""

from __future__ import annotations

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple
from weft._base.types import AnyCallable
from weft._tensor.arguments import refuse_of_other_library
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ShapeError, ValueRangeError
from weft.nn._linear import fresh, uniform_by_fan
from weft.nn._module import Module


class RNNCellBase(Module):
    """The base of cells; the weights for input and state have `num_chunks` * hidden_size rows each."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = fresh((rows, input_size), device, dtype)
        self.weight_hh = fresh((rows, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, fresh((rows,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters uniformly from ±1 / sqrt(hidden_size)."""
        for parameter in self.parameters():
            uniform_by_fan(parameter, self.hidden_size)

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        text += "" if self.bias else f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _check_dims(self, what: str, x: Tensor) -> None:
        refuse_of_other_library(x, what, type(self).__name__)
        if x.ndim not in (1, 2):
            raise ValueRangeError(f"{type(self).__name__}: Expected {what} to be 1D or 2D, got {x.ndim}D instead")

    def _step(
        self, row: AnyCallable, input: Tensor, states: tuple[Tensor, ...] | None, count: int = 1
    ) -> tuple[Tensor, ...]:
        """`row(input, states, …)` with a batch dim, which is removed again where the input has none."""
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            zeros = x.new_zeros((x.shape[0], self.hidden_size))
            states = (zeros,) * count
        elif not batched:
            states = tuple(state.unsqueeze(0) for state in states)
        result = row(x, states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return tuple(result) if batched else tuple(state.squeeze(0) for state in result)


def _of_one(row: AnyCallable) -> AnyCallable:
    """A row with a single state, wrapped so that it takes and returns states as tuples."""

    def step(x: Tensor, states: tuple[Tensor, ...], *weights: Tensor | None) -> tuple[Tensor]:
        return (row(x, *states, *weights),)

    return step


class RNNCell(RNNCellBase):
    """One step of a plain RNN, with tanh or, if `nonlinearity` is "relu", ReLU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the state (batch, hidden_size), or both without batch, to the new state."""
        self._check_dims("input", input)
        if hx is not None:
            self._check_dims("hidden", hx)
        rows = {"tanh": op.rnn_tanh_cell, "relu": op.rnn_relu_cell}
        if self.nonlinearity not in rows:
            raise ShapeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(_of_one(rows[self.nonlinearity]), input, None if hx is None else (hx,))[0]


class _GatedCell(RNNCellBase):
    """The base of cells with gates; the weights have `_chunks` * hidden_size rows each."""

    _chunks: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self._chunks, device, dtype)


class GRUCell(_GatedCell):
    """One step of a GRU; the reset gate scales the projected state."""

    _chunks = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the state (batch, hidden_size), or both without batch, to the new state."""
        self._check_dims("input", input)
        if hx is not None:
            self._check_dims("hidden", hx)
        return self._step(_of_one(op.gru_cell), input, None if hx is None else (hx,))[0]


class LSTMCell(_GatedCell):
    """One step of an LSTM."""

    _chunks = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(batch, input_size) and the states (batch, hidden_size), or all without batch, to the new states."""
        self._check_dims("input", input)
        if hx is not None and not is_list_or_tuple(hx):
            raise ArgumentError(
                f"lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not {type(hx).__name__}"
            )
        for at, state in enumerate(hx or ()):
            self._check_dims(f"hx[{at}]", state)
        h, c = self._step(op.lstm_cell, input, None if hx is None else tuple(hx), 2)
        return h, c
