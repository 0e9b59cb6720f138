"""Recurrent layers with quantized weights: inputs and states are put on the grid of their range before each product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from weft._base.dtype import DType, float16, float32, int64, qint8
from weft._base.types import AnyCallable, Arg, AttributeValue, Result
from weft._tensor import packing
from weft._tensor.codegen import op
from weft._tensor.composite.quantized import quantize_per_tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import default_dynamic_qconfig
from weft.ao.nn.quantized._arithmetic import Weights, observed_weight, weight_observer, weights_of
from weft.ao.nn.quantized._module import HidesState, QuantizedModule, require_type
from weft.errors import ShapeError, UnsupportedError
from weft.nn import functional as F
from weft.nn._containers import ModuleList
from weft.nn._lookup import AnyModule
from weft.nn._rnn import GRU as FloatGRU
from weft.nn._rnn import LSTM as FloatLSTM
from weft.nn._rnn_cell import GRUCell as FloatGRUCell
from weft.nn._rnn_cell import LSTMCell as FloatLSTMCell
from weft.nn._rnn_cell import RNNCell as FloatRNNCell
from weft.nn.utils.rnn import PackedSequence, packed_like, padded_of

if TYPE_CHECKING:
    from weft.nn._module import Module

States = tuple[Tensor, ...]


class CellWeights(NamedTuple):
    """The two affine maps of a cell: of its input, and of its state."""

    ih: Weights
    hh: Weights

    def entries(self) -> tuple[Tensor | None, ...]:
        """What is saved."""
        return self.ih.weight, self.hh.weight, self.ih.bias, self.hh.bias


def _cell_weights(ih: Tensor, hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None) -> CellWeights:
    return CellWeights(weights_of(ih, bias_ih), weights_of(hh, bias_hh))


def _zero_weights(rows: int, input_size: int, hidden_size: int, bias: bool, dtype: DType) -> CellWeights:
    """Weights until others are loaded."""
    ih, hh = (op.zeros((rows, size), dtype=float32) for size in (input_size, hidden_size))
    if dtype is qint8:
        ih, hh = (quantize_per_tensor(x, 1.0, 0, qint8) for x in (ih, hh))
    biases = [op.zeros((rows,), dtype=float32) if bias else None for _ in range(2)]
    return _cell_weights(ih, hh, biases[0], biases[1])


def _lstm(of_input: Tensor, of_state: Tensor, h: Tensor, c: Tensor) -> States:
    del h
    i, f, g, o = (of_input + of_state).chunk(4, -1)
    c = op.sigmoid(f) * c + op.sigmoid(i) * op.tanh(g)
    return op.sigmoid(o) * op.tanh(c), c


def _gru(of_input: Tensor, of_state: Tensor, h: Tensor) -> States:
    (r, z, n), (hr, hz, hn) = of_input.chunk(3, -1), of_state.chunk(3, -1)
    z, n = op.sigmoid(z + hz), op.tanh(n + op.sigmoid(r + hr) * hn)
    return ((h - n) * z + n,)


_STEPS = {"LSTM": _lstm, "GRU": _gru}
_GATES = {"LSTM": 4, "GRU": 3}


class PackedParameter(QuantizedModule):
    """The weights of one layer in one direction."""

    def __init__(self, param: CellWeights) -> None:
        super().__init__()
        self.param = param

    def _entries(self) -> dict[str, AttributeValue]:
        return {"param": self.param.entries()}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        self.param = _cell_weights(*entries["param"])


def _observer_for(mod: Module) -> Module:
    """The observer of a float layer's weights."""
    observer = weight_observer(mod, default_dynamic_qconfig)
    if observer().dtype not in (qint8, float16):
        raise UnsupportedError(f"Unsupported dtype for dynamic RNN quantization: {observer().dtype}")
    return observer


class _Holder(NamedTuple):
    weight: Tensor


def _quantized(weight: Tensor, make_observer: AnyCallable) -> Tensor:
    """A weight of 8 bits, or rounded to float16, as its observer says."""
    observer = make_observer()
    if observer.dtype is float16:
        return weight.detach().to(float16).to(float32)
    return observed_weight(_Holder(weight), observer)


class RNNBase(HidesState):
    """The base of recurrent layers with quantized weights; arguments are those of the float layers."""

    _FLOAT_MODULE: ClassVar[Any]
    _STATES: ClassVar[int] = 1
    _version = 2

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
        dtype: DType = qint8,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.dtype = bidirectional, dtype
        self.version = 2
        self.training = False
        sizes = [input_size, *[hidden_size * self._directions] * (num_layers - 1)]
        rows = _GATES[mode] * hidden_size
        self._all_weight_values = ModuleList(
            PackedParameter(_zero_weights(rows, size, hidden_size, bias, dtype))
            for size in sizes
            for _ in range(self._directions)
        )

    @property
    def _directions(self) -> int:
        return 1 + self.bidirectional

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def extra_repr(self) -> str:
        """Sizes, and the arguments that are not at their defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        return text + "".join(
            f", {name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value
        )

    def _check_input(self, x: Tensor, batched_dims: int) -> None:
        if x.ndim != batched_dims:
            raise ShapeError(f"input must have {batched_dims} dimensions, got {x.ndim}")
        if x.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def _layer(
        self, weights: CellWeights, x: Tensor, states: States, lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, States]:
        """All steps of one layer in one direction: outputs (length, batch, hidden), and the last states."""
        step = _STEPS[self.mode]
        of_input, length = weights.ih.linear_of_floats(x), x.shape[0]
        outputs: list[Tensor] = [x] * length  # all are replaced
        for t in reversed(range(length)) if reverse else range(length):
            alive = None if lengths is None else op.unsqueeze(lengths > t, -1)
            h = states[0] if alive is None else op.where(alive, states[0], 0.0)  # what has ended widens no grid
            new = step(of_input[t], weights.hh.linear_of_floats(h), *states)
            if alive is not None:
                new = tuple([op.where(alive, a, b) for a, b in zip(new, states, strict=True)])
                outputs[t] = op.where(alive, new[0], 0.0)
            else:
                outputs[t] = new[0]
            states = new
        return op.stack(outputs), states

    def _run(self, x: Tensor, states: Sequence[Tensor], lengths: Tensor | None) -> tuple[Tensor, States]:
        """(length, batch, input_size) and (layers * directions, batch, hidden) of each state."""
        if not x.shape[0]:
            raise ShapeError("Expected sequence length to be larger than 0 in RNN")
        ends: list[States] = []
        for layer in range(self.num_layers):
            outputs: list[Tensor] = []
            for direction in range(self._directions):
                at = layer * self._directions + direction
                values: AnyModule = self._all_weight_values[at]
                own = tuple([state[at] for state in states])
                y, last = self._layer(values.param, x, own, lengths, direction == 1)
                outputs.append(y)
                ends.append(last)
            x = op.cat(outputs, 2) if self.bidirectional else outputs[0]
            if self.training and self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout)
        return x, tuple([op.stack(list(parts)) for parts in zip(*ends, strict=True)])

    def _start(self, x: Tensor, hx: Arg, batch: int) -> States:
        count = self.num_layers * self._directions
        if hx is None:
            zeros = op.zeros((count, batch, self.hidden_size), dtype=float32, device=x.device)
            return (zeros,) * self._STATES
        states = tuple(hx) if self._STATES > 1 else (hx,)
        for state in states:
            if tuple(state.shape) != (count, batch, self.hidden_size):
                raise ShapeError(f"Expected hidden size {(count, batch, self.hidden_size)}, got {list(state.shape)}")
        return states

    def forward(self, input: Tensor | PackedSequence, hx: Arg = None) -> Result:
        """As the float layer: (length, batch, input_size), batch first if so made, or a packed sequence."""
        if isinstance(input, PackedSequence):
            return self._of_packed(input, hx)
        self._check_input(input, 3)
        x = op.transpose(input, 0, 1) if self.batch_first else input
        y, states = self._run(x, self._start(x, hx, x.shape[1]), None)
        return op.transpose(y, 0, 1) if self.batch_first else y, states if self._STATES > 1 else states[0]

    def _of_packed(self, packed: PackedSequence, hx: Arg) -> Result:
        data, batch_sizes, order, back = packed
        self._check_input(data, 2)
        states = self._start(data, hx, int(batch_sizes._host()[0]))
        if hx is not None and order is not None:
            states = tuple([op.index_select(state, 1, order) for state in states])
        lengths = packing.lengths_on_device_of(batch_sizes, data)
        padded = padded_of(packed)
        steps = op.arange((padded.shape[0],), 0, 1, dtype=int64, device=data.device)
        alive = op.unsqueeze(op.unsqueeze(steps, 1) < lengths, 2)
        y, states = self._run(op.where(alive, padded, 0.0), states, lengths)
        if back is not None:
            states = tuple([op.index_select(state, 1, back) for state in states])
        return packed_like(y, batch_sizes, order, back), states if self._STATES > 1 else states[0]

    def get_weight(self) -> dict[str, Tensor]:
        """The weights by the names that they have in the float layer."""
        return {name: value for name, value in self._named() if name.startswith("weight")}

    def get_bias(self) -> dict[str, Tensor]:
        """The biases by the names that they have in the float layer."""
        return {name: value for name, value in self._named() if name.startswith("bias")}

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for at, values in enumerate(self._all_weight_values):
            layer, direction = divmod(at, self._directions)
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            held: AnyModule = values
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), held.param.entries(), strict=True):
                yield name + suffix, value

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The form with quantized weights of a float layer."""
        del use_precomputed_fake_quant
        require_type(mod, cls._FLOAT_MODULE, cls)
        if getattr(mod, "proj_size", 0):
            raise UnsupportedError("dynamic quantization of an LSTM with proj_size is not supported")
        observer = _observer_for(mod)
        make: AnyModule = cls
        result = make(
            mod.input_size,
            mod.hidden_size,
            mod.num_layers,
            mod.bias,
            mod.batch_first,
            mod.dropout,
            mod.bidirectional,
            dtype=observer().dtype,
        )
        for values, (ih, hh, *biases) in zip(result._all_weight_values, mod.all_weights, strict=True):
            bias_ih, bias_hh = biases or (None, None)
            values.param = _cell_weights(_quantized(ih, observer), _quantized(hh, observer), bias_ih, bias_hh)
        return result


class LSTM(RNNBase):
    """An LSTM with weights of 8 bits, or rounded to float16."""

    _FLOAT_MODULE = FloatLSTM
    _STATES = 2

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """A GRU with weights of 8 bits, or rounded to float16."""

    _FLOAT_MODULE = FloatGRU

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__("GRU", *args, **kwargs)


# --- single steps -------------------------------------------------------------------------------------------------


class RNNCellBase(QuantizedModule):
    """The base of cells with quantized weights."""

    _FLOAT_MODULE: ClassVar[Any]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, num_chunks: int = 4, dtype: DType = qint8
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_dtype = dtype
        self._cell = _zero_weights(num_chunks * hidden_size, input_size, hidden_size, bias, dtype)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        """Sizes, and the arguments that are not at their defaults."""
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _entries(self) -> dict[str, AttributeValue]:
        return {
            f"_packed_weight_{name}": (weights.weight, weights.bias)
            for name, weights in zip(("ih", "hh"), self._cell, strict=True)
        }

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        (ih, bias_ih), (hh, bias_hh) = entries["_packed_weight_ih"], entries["_packed_weight_hh"]
        self._cell = _cell_weights(ih, hh, bias_ih, bias_hh)

    def get_weight(self) -> dict[str, Tensor]:
        """The weights by the names that they have in the float cell."""
        return {"weight_ih": self._cell.ih.weight, "weight_hh": self._cell.hh.weight}

    def get_bias(self) -> dict[str, Tensor | None]:
        """The biases by the names that they have in the float cell."""
        return {"bias_ih": self._cell.ih.bias, "bias_hh": self._cell.hh.bias}

    def _maps(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[-1] != self.input_size:
            raise ShapeError(f"input has inconsistent input_size: got {x.shape[-1]}, expected {self.input_size}")
        return self._cell.ih.linear_of_floats(x), self._cell.hh.linear_of_floats(h)

    def _state(self, x: Tensor) -> Tensor:
        return op.zeros((*x.shape[:-1], self.hidden_size), dtype=float32, device=x.device)

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The form with quantized weights of a float cell."""
        del use_precomputed_fake_quant
        require_type(mod, cls._FLOAT_MODULE, cls)
        observer = _observer_for(mod)
        more = {"nonlinearity": mod.nonlinearity} if cls._FLOAT_MODULE is FloatRNNCell else {}
        make: AnyModule = cls
        result = make(mod.input_size, mod.hidden_size, mod.bias, dtype=observer().dtype, **more)
        weights = [_quantized(w, observer) for w in (mod.weight_ih, mod.weight_hh)]
        result._cell = _cell_weights(weights[0], weights[1], mod.bias_ih, mod.bias_hh)
        return result


class LSTMCell(RNNCellBase):
    """One step of an LSTM with quantized weights."""

    _FLOAT_MODULE = FloatLSTMCell

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__(*args, num_chunks=4, **kwargs)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> States:
        """(batch, input_size) and the states (batch, hidden_size) to the new states."""
        h, c = (self._state(input),) * 2 if hx is None else hx
        return _lstm(*self._maps(input, h), h, c)


class GRUCell(RNNCellBase):
    """One step of a GRU with quantized weights."""

    _FLOAT_MODULE = FloatGRUCell

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: DType = qint8) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the state (batch, hidden_size) to the new state."""
        h = self._state(input) if hx is None else hx
        return _gru(*self._maps(input, h), h)[0]


class RNNCell(RNNCellBase):
    """One step of a plain RNN with quantized weights."""

    _FLOAT_MODULE = FloatRNNCell

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: DType = qint8
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the state (batch, hidden_size) to the new state."""
        of_input, of_state = self._maps(input, self._state(input) if hx is None else hx)
        functions = {"tanh": op.tanh, "relu": op.relu}
        if self.nonlinearity not in functions:
            raise ShapeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return functions[self.nonlinearity](of_input + of_state)
