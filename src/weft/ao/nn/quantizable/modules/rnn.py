"""LSTMs made of layers that can be observed, so that all that a step computes gets a grid."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType, float32, quint8
from weft._tensor.codegen import op
from weft._tensor.composite.quantized import quantize_per_tensor
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantizable._module import qconfig_of
from weft.ao.nn.quantized._module import require_type
from weft.ao.nn.quantized.modules.functional_modules import FloatFunctional
from weft.ao.quantization.quantize import prepare, prepare_qat
from weft.errors import PreconditionError, UnsupportedError
from weft.nn._activation import Sigmoid, Tanh
from weft.nn._containers import ModuleList
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.nn._rnn import LSTM as FloatLSTM
from weft.nn._rnn_cell import LSTMCell as FloatLSTMCell

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny

States = tuple[Tensor, Tensor]
"""The hidden state and the cell state."""

_GRID = (1.0, 0)
"""The scale and the zero point of states that are zero."""


class LSTMCell(Module):
    """One step of an LSTM, whose products, sums and gates are modules."""

    _FLOAT_MODULE: ClassVar[Any] = FloatLSTMCell

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_dim, hidden_dim, bias
        self.igates = Linear(input_dim, 4 * hidden_dim, bias, device, dtype)
        self.hgates = Linear(hidden_dim, 4 * hidden_dim, bias, device, dtype)
        self.gates = FloatFunctional()
        self.input_gate, self.forget_gate, self.cell_gate, self.output_gate = Sigmoid(), Sigmoid(), Tanh(), Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams = self.initial_cell_state_qparams = _GRID
        self.hidden_state_dtype = self.cell_state_dtype = quint8

    def forward(self, x: Tensor, hidden: States | None = None) -> States:
        """(batch, input_size), and the states (batch, hidden_size), or zeros, to the new states."""
        hx, cx = self.initialize_hidden(x.shape[0], x.is_quantized, x.device) if hidden is None else hidden
        i, f, g, o = self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1)
        i, f, g, o = self.input_gate(i), self.forget_gate(f), self.cell_gate(g), self.output_gate(o)
        cy = self.fgate_cx_igate_cgate.add(self.fgate_cx.mul(f, cx), self.igate_cgate.mul(i, g))
        return self.ogate_cy.mul(o, op.tanh(cy)), cy

    def initialize_hidden(
        self, batch_size: int, is_quantized: bool = False, device: DeviceLike | None = None
    ) -> States:
        """States of zeros, (batch, hidden_size), on the grids that the attributes name if they are to be quantized."""
        size = (batch_size, self.hidden_size)
        return (
            _zeros(size, device, self.hidden_state_dtype if is_quantized else None, self.initial_hidden_state_qparams),
            _zeros(size, device, self.cell_state_dtype if is_quantized else None, self.initial_cell_state_qparams),
        )

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(cls, wi: Tensor, wh: Tensor, bi: Tensor | None = None, bh: Tensor | None = None) -> LSTMCell:
        """The cell with these weights, (4 hidden_size, input_size) and (4 hidden_size, hidden_size), and biases."""
        if (bi is None) != (bh is None):
            raise PreconditionError("bi and bh must both be given, or neither")
        cell = cls(wi.shape[1], wh.shape[1], bi is not None)
        for linear, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            linear.weight = Parameter(weight)
            linear.bias = None if bias is None else Parameter(bias)
        return cell

    @classmethod
    def from_float(cls, other: Module, use_precomputed_fake_quant: bool = False) -> LSTMCell:
        """The cell with the weights of a float one, which has a `qconfig`."""
        del use_precomputed_fake_quant
        require_type(other, cls._FLOAT_MODULE, cls)
        cell = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh)
        cell.qconfig = qconfig_of(other)
        return cell


class _LSTMSingleLayer(Module):
    """A layer in one direction."""

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, hidden: States) -> tuple[Tensor, States]:
        """(length, batch, features) and the first states to (length, batch, hidden_size) and the last states."""
        outputs: list[Tensor] = []
        for at in range(x.shape[0]):
            hidden = self.cell(x[at], hidden)
            outputs.append(hidden[0])
        return op.stack(outputs), hidden


class _LSTMLayer(Module):
    """A layer in one direction, or in both."""

    def __init__(self, forwards: LSTMCell, backwards: LSTMCell | None) -> None:
        super().__init__()
        self.layer_fw = _LSTMSingleLayer(forwards)
        if backwards is not None:
            self.layer_bw = _LSTMSingleLayer(backwards)

    def forward(self, x: Tensor, hidden: States) -> tuple[Tensor, States]:
        """As for one direction; states are (directions, batch, hidden_size)."""
        h, c = hidden
        y, last = self.layer_fw(x, (h[0], c[0]))
        ends = [last]
        if hasattr(self, "layer_bw"):
            back, last = self.layer_bw(x.flip(0), (h[1], c[1]))
            ends.append(last)
            y = op.cat([y, back.flip(0)], 2)
        return y, (op.stack([end[0] for end in ends]), op.stack([end[1] for end in ends]))


class LSTM(Module):
    """An LSTM whose products, sums and gates are modules: `prepare` replaces `nn.LSTM` by it."""

    _FLOAT_MODULE: ClassVar[Any] = FloatLSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if dropout:
            warnings.warn("an LSTM that can be observed ignores dropout", UserWarning, stacklevel=2)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional

        def cell(inputs: int) -> LSTMCell:
            return LSTMCell(inputs, hidden_size, bias, device, dtype)

        sizes = [input_size, *[hidden_size * (1 + bidirectional)] * (num_layers - 1)]
        self.layers = ModuleList(_LSTMLayer(cell(size), cell(size) if bidirectional else None) for size in sizes)
        self.eval()

    def forward(self, x: Tensor, hidden: States | None = None) -> tuple[Tensor, States]:
        """(length, batch, input_size), or batch first if so made, and states (layers * directions, batch, hidden_size).

        States that are given are quantized if the input is.
        """
        if self.batch_first:
            x = op.transpose(x, 0, 1)
        count, size = 1 + self.bidirectional, (x.shape[1], self.hidden_size)
        if hidden is None:
            zeros = _zeros((self.num_layers * count, *size), x.device, x.dtype if x.is_quantized else None, _GRID)
            hidden = (zeros, zeros)
        starts = [op.reshape(state, (self.num_layers, count, *size)) for state in hidden]
        ends: list[States] = []
        for at, layer in enumerate(self.layers):
            x, last = layer(x, (starts[0][at], starts[1][at]))
            ends.append(last)
        h, c = (op.cat([end[at] for end in ends], 0) for at in range(2))
        return op.transpose(x, 0, 1) if self.batch_first else x, (h, c)

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Module, qconfig: QConfigAny = None) -> Module:
        """The observed form of a float layer, which has a `qconfig` unless one is given."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise PreconditionError(f"Expected module type {cls._FLOAT_MODULE.__name__}, got {type(other).__name__}")
        if getattr(other, "proj_size", 0):
            raise UnsupportedError("quantization of an LSTM with proj_size is not supported")
        result = cls(
            other.input_size,
            other.hidden_size,
            other.num_layers,
            other.bias,
            other.batch_first,
            other.dropout,
            other.bidirectional,
        )
        result.qconfig = qconfig_of(other, qconfig)
        weights = iter(other.all_weights)
        for at in range(other.num_layers):
            cells = [LSTMCell.from_params(*next(weights)) for _ in range(1 + other.bidirectional)]
            result.layers[at] = _LSTMLayer(cells[0], cells[1] if other.bidirectional else None)
        if other.training:
            return prepare_qat(result.train(), inplace=True)
        return prepare(result.eval(), inplace=True)

    @classmethod
    def from_observed(cls, other: Module) -> Module:
        """Raises `NotImplementedError`: what was observed becomes an `nn.quantized.LSTM`."""
        raise UnsupportedError(
            f"nn.quantizable.{cls.__name__}.from_observed: use nn.quantized.LSTM.from_observed for a "
            f"{type(other).__name__} that was observed"
        )


def _zeros(size: tuple[int, ...], device: DeviceLike | None, dtype: DType | None, grid: tuple[float, int]) -> Tensor:
    """Zeros; of a quantized type if one is named."""
    zeros = op.zeros(size, dtype=float32, device=device)
    return zeros if dtype is None else quantize_per_tensor(zeros, *grid, dtype)
