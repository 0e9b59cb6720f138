"""Recurrent networks: RNN, LSTM and GRU."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg, Kwargs, SavedState
from weft._tensor import packing
from weft._tensor.arguments import refuse_of_other_library
from weft._tensor.codegen import op
from weft._tensor.composite.recurrent import run
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ShapeError, ValueRangeError
from weft.nn._linear import fresh, uniform_by_fan
from weft.nn._lookup import options_repr
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.nn.utils.rnn import PackedSequence, packed_like, padded_of

States: TypeAlias = Any
"""First or last states: a tensor, or those of an LSTM as a pair (hidden states, cells)."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class RNNBase(Module):
    """The base of recurrent networks. `mode` is LSTM, GRU, RNN_TANH or RNN_RELU; layers run in one or both directions.

    Inputs are (length, batch, input_size), or (batch, length, input_size) if `batch_first`, or have no batch dim, or
    are a `PackedSequence`. In training, `dropout` is applied to the outputs of all layers but the last.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        _check_options(self, dropout)
        self._all_weights = self._register(device, dtype)
        self.reset_parameters()

    def _register(self, device: DeviceLike | None, dtype: DType | None) -> list[list[str]]:
        """Create the parameters; returns their names by layer and direction."""
        state, rows = self.proj_size or self.hidden_size, _GATES[self.mode] * self.hidden_size
        names: list[list[str]] = []
        for layer in range(self.num_layers):
            columns = self.input_size if not layer else state * (1 + self.bidirectional)
            shapes = ((rows, columns), (rows, state), (rows,), (rows,), (self.proj_size, self.hidden_size))
            for suffix in ("", "_reverse")[: 1 + self.bidirectional]:
                group = {
                    f"{name}_l{layer}{suffix}": shape
                    for name, shape in zip(_NAMES, shapes, strict=True)
                    if (self.bias or len(shape) > 1) and all(shape)
                }
                for name, shape in group.items():
                    self.register_parameter(name, fresh(shape, device, dtype))
                names.append(list(group))
        return names

    def reset_parameters(self) -> None:
        """Draw new parameters uniformly from ±1 / sqrt(hidden_size)."""
        for parameter in self.parameters():
            uniform_by_fan(parameter, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Does nothing: XLA chooses the memory layout of parameters."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def __getstate__(self) -> SavedState:
        # PyTorch's modules have these as attributes of their own, and need them in a file: None for computed weights.
        names = self._flat_weights_names
        flat = [self._parameters.get(name) for name in names]
        return {**super().__getstate__(), "_flat_weights_names": names, "_flat_weights": flat}

    def __setstate__(self, state: SavedState) -> None:
        super().__setstate__({name: value for name, value in state.items() if not name.startswith("_flat_weights")})

    # --- checks ---------------------------------------------------------------------------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Refuse an input of another type or size. With `batch_sizes`, the input is packed data."""
        own = self.weight_ih_l0.dtype
        if input.dtype != own:
            raise ValueRangeError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({own}). Convert input: "
                f"input.to({own}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.ndim != expected:
            raise ShapeError(f"input must have {expected} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )

    def _expected_size(self, input: Tensor, batch_sizes: Tensor | None, size: int) -> tuple[int, int, int]:
        batch = input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes._host()[0])
        return self.num_layers * (1 + self.bidirectional), batch, size

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The size of the initial hidden state."""
        return self._expected_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(
        self, hx: States, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Refuse an initial state of another size."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise ShapeError(msg.format(tuple(expected_hidden_size), list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: States, batch_sizes: Tensor | None) -> None:
        """Refuse an input and an initial state that do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: States, permutation: Tensor | None) -> States:
        """The state with the batch in another order."""
        return hx if permutation is None else op.index_select(hx, 1, permutation)

    def _check_hidden_dims(self, hx: States, batched: bool) -> None:
        if batched and hx.ndim != 3:
            raise ShapeError(f"For batched 3-D input, hx should also be 3-D but got {hx.ndim}-D tensor")
        if not batched and hx.ndim != 2:
            raise ShapeError(f"For unbatched 2-D input, hx should also be 2-D but got {hx.ndim}-D tensor")

    # --- running --------------------------------------------------------------------------------------------------

    def _run(self, input: Tensor | PackedSequence, hx: States) -> tuple[Tensor | PackedSequence, States]:
        """The outputs and the last states, of packed or padded input."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        refuse_of_other_library(input, "input", type(self).__name__)
        if input.ndim not in (2, 3):
            word = "D tensor" if self.mode.startswith("RNN") else "D"
            name = self.mode.partition("_")[0]
            raise ValueRangeError(f"{name}: Expected input to be 2D or 3D, got {input.ndim}{word} instead")
        batched, batch_dim = input.ndim == 3, 0 if self.batch_first else 1
        if hx is not None:
            self._check_hidden_dims(hx, batched)
        if not batched:
            input = input.unsqueeze(batch_dim)
            hx = None if hx is None else _each(hx, lambda state: state.unsqueeze(1))
        hx = self._zeros(input, input.shape[batch_dim]) if hx is None else hx
        self.check_forward_args(input, hx, None)
        output, hx = self._stack(input.transpose(0, 1) if self.batch_first else input, hx, None)
        output = output.transpose(0, 1) if self.batch_first else output
        if batched:
            return output, hx
        return output.squeeze(batch_dim), _each(hx, lambda state: state.squeeze(1))

    def _run_packed(self, packed: PackedSequence, hx: States) -> tuple[PackedSequence, States]:
        data, batch_sizes, order, back = packed
        hx = self._zeros(data, int(batch_sizes._host()[0])) if hx is None else self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        output, hx = self._stack(padded_of(packed), hx, packing.lengths_on_device_of(batch_sizes, data))
        return packed_like(output, batch_sizes, order, back), self.permute_hidden(hx, back)

    def _stack(self, padded: Tensor, hx: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        """Run all layers on (length, batch, …)."""
        weights: list[list[Tensor | None]] = []
        for names in self._all_weights:
            suffix = names[0].removeprefix("weight_ih")
            group = [getattr(self, name + suffix) if name + suffix in names else None for name in _NAMES]
            weights.append(group if self.mode == "LSTM" else group[:4])
        states = hx if self.mode == "LSTM" else (hx,)
        output, ends = run(
            self.mode,
            padded,
            states,
            weights,
            bidirectional=self.bidirectional,
            lengths=lengths,
            dropout=self.dropout if self.training else 0.0,
        )
        return output, ends if self.mode == "LSTM" else ends[0]

    def _zeros(self, input: Tensor, batch: int) -> States:
        """The initial state that is used where none is given."""
        layers = self.num_layers * (1 + self.bidirectional)
        return input.new_zeros((layers, batch, self.hidden_size))

    def extra_repr(self) -> str:
        """The sizes, and the options that are not at their defaults."""
        return f"{self.input_size}, {self.hidden_size}" + options_repr(
            self, proj_size=0, num_layers=1, bias=True, batch_first=False, dropout=0, bidirectional=False
        )


def _each(states: States, fn: Callable[[Tensor], Tensor]) -> States:
    """`fn` applied to a state, or to both states of an LSTM."""
    return tuple(map(fn, states)) if is_list_or_tuple(states) else fn(states)


def _check_options(net: RNNBase, dropout: object) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= net.dropout <= 1:
        raise ValueRangeError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if net.dropout > 0 and net.num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={net.num_layers}",
            stacklevel=4,
        )
    for name, kind in (("bias", bool), ("batch_first", bool), ("input_size", int), ("hidden_size", int)):
        value = getattr(net, name)
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    for name in ("input_size", "hidden_size", "num_layers"):
        if getattr(net, name) <= 0:
            raise ValueRangeError(f"{name} must be greater than zero")
    if net.proj_size < 0:
        raise ValueRangeError("proj_size should be a positive integer or zero to disable projections")
    if net.proj_size >= net.hidden_size:
        raise ValueRangeError("proj_size has to be smaller than hidden_size")
    if net.mode not in _GATES:
        raise ValueRangeError(f"Unrecognized RNN mode: {net.mode}")


def _refuse_projections(options: Kwargs) -> None:
    if "proj_size" in options:
        raise ValueRangeError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h' = tanh(x weight_ih' + bias_ih + h weight_hh' + bias_hh), or with ReLU if `nonlinearity` is "relu"."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        _refuse_projections(kwargs)
        if len(args) > 3:
            nonlinearity, args = args[3], args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueRangeError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(modes[nonlinearity], *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor | PackedSequence, hx: States = None) -> tuple[Tensor | PackedSequence, States]:
        """The outputs of the last layer, and the last state of each layer and direction."""
        return self._run(input, hx)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., https://arxiv.org/abs/1406.1078).

    The reset gate scales the projected state.
    """

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        _refuse_projections(kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Tensor | PackedSequence, hx: States = None) -> tuple[Tensor | PackedSequence, States]:
        """The outputs of the last layer, and the last state of each layer and direction."""
        return self._run(input, hx)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with forget gates.

    With `proj_size`, hidden states are projected to that size (Sak et al., https://arxiv.org/abs/1402.1128).
    """

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Tensor | PackedSequence, hx: States = None) -> tuple[Tensor | PackedSequence, States]:
        """The outputs of the last layer, and the last hidden state and cell of each layer and direction."""
        return self._run(input, hx)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The size of the initial cell."""
        return self._expected_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: States, batch_sizes: Tensor | None) -> None:
        """Refuse an input and initial states that do not fit."""
        self.check_input(input, batch_sizes)
        sizes = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        for at, (state, size) in enumerate(zip(hidden, sizes, strict=True)):
            self.check_hidden_size(state, size, f"Expected hidden[{at}] size {{}}, got {{}}")

    def permute_hidden(self, hx: States, permutation: Tensor | None) -> States:
        """Both states with the batch in another order."""
        return hx if permutation is None else _each(hx, lambda state: op.index_select(state, 1, permutation))

    def _check_hidden_dims(self, hx: States, batched: bool) -> None:
        if not (isinstance(hx, Tensor) or (is_list_or_tuple(hx) and len(hx) == 2)):
            raise ArgumentError(f"LSTM: hx must be a pair (h_0, c_0) of tensors, got {type(hx).__name__}")
        h, c = hx[0].ndim, hx[1].ndim
        if batched and (h, c) != (3, 3):
            raise ShapeError(f"For batched 3-D input, hx and cx should also be 3-D but got ({h}-D, {c}-D) tensors")
        if not batched and (h, c) != (2, 2):
            raise ShapeError(f"For unbatched 2-D input, hx and cx should also be 2-D but got ({h}-D, {c}-D) tensors")
        if isinstance(hx, Tensor):  # PyTorch also checks the parts of a tensor before it refuses it
            raise ArgumentError("lstm(): argument 'hx' must be tuple of Tensors, not Tensor")

    def _zeros(self, input: Tensor, batch: int) -> States:
        cell = super()._zeros(input, batch)
        if not self.proj_size:
            return cell, cell
        return input.new_zeros((cell.shape[0], batch, self.proj_size)), cell
