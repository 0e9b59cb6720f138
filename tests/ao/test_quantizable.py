"""Layers made of parts that can be observed: what they compute, what they become, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.nn.quantizable as former
from weft import nn
from weft.ao import quantization as tq
from weft.ao.nn import quantizable, quantized

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")

KINDS = {
    "one layer": {},
    "several": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True, "bias": False},
}


class Model(nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.quant, self.lstm, self.dequant = tq.QuantStub(), nn.LSTM(4, 3, **more), tq.DeQuantStub()

    def forward(self, x):
        y, (h, c) = self.lstm(self.quant(x))
        return self.dequant(y), self.dequant(h), self.dequant(c)


@pytest.fixture(autouse=True)
def seed():
    weft.manual_seed(0)


def _observed(model, x):
    model.qconfig = tq.default_qconfig
    prepared: Any = tq.prepare(model.eval())
    prepared(x)
    return prepared


@pytest.mark.parametrize("kind", KINDS)
def test_an_lstm_is_observed_and_quantized(kind):
    model, x = Model(**KINDS[kind]), weft.randn(5, 2, 4)
    prepared = _observed(model, x)
    assert type(prepared.lstm) is quantizable.LSTM
    assert not hasattr(prepared.lstm, "activation_post_process")
    weft.testing.assert_close(prepared(x), model(x))
    result: Any = tq.convert(prepared)
    assert type(result.lstm) is quantized.LSTM
    cell = result.lstm.layers[0].layer_fw.cell
    assert type(cell.igates) is quantized.Linear
    assert type(cell.gates) is quantized.QFunctional
    weft.testing.assert_close(result(x), model(x), atol=0.1, rtol=0)
    fresh: Any = tq.convert(_observed(Model(**KINDS[kind]), x))
    fresh.load_state_dict(result.state_dict())
    assert all(map(weft.equal, fresh(x), result(x)))


def test_an_lstm_is_trained_with_rounding():
    model, x = Model(), weft.randn(5, 2, 4)
    model.qconfig = tq.default_qat_qconfig
    trained: Any = tq.prepare_qat(model.train())
    assert type(trained.lstm.layers[0].layer_fw.cell.igates) is weft.ao.nn.qat.Linear
    trained(x)[0].square().sum().backward()
    assert trained.lstm.layers[0].layer_fw.cell.hgates.weight.grad.any()
    result: Any = tq.convert(trained.eval())
    assert type(result.lstm) is quantized.LSTM
    assert (result(x)[0] - model.eval()(x)[0]).abs().mean() < 0.1


def test_states_are_given_and_returned():
    layer, x = nn.LSTM(4, 3, 2).eval(), weft.randn(5, 2, 4)
    layer.qconfig = tq.default_qconfig
    observed, states = quantizable.LSTM.from_float(layer), (weft.randn(2, 2, 3), weft.randn(2, 2, 3))
    expected = layer(x, states)
    weft.testing.assert_close(observed(x, states), expected)
    on_grid = [weft.quantize_per_tensor(part, 0.05, 128, weft.quint8) for part in (x, *states)]
    y, (h, c) = quantized.LSTM.from_observed(observed)(on_grid[0], tuple(on_grid[1:]))
    numbers = y.dequantize(), (h.dequantize(), c.dequantize())
    weft.testing.assert_close(numbers, expected, atol=0.1, rtol=0)


def test_a_cell_has_the_weights_of_a_float_one():
    cell, x = nn.LSTMCell(4, 3), weft.randn(2, 4)
    cell.qconfig = tq.default_qconfig
    observed = quantizable.LSTMCell.from_float(cell)
    weft.testing.assert_close(observed(x), cell(x))
    assert former.LSTMCell is quantizable.LSTMCell


ATTENTION = {
    "plain": {},
    "batch first": {"batch_first": True, "bias": False},
    "other sizes": {"kdim": 6, "vdim": 5},
    "more keys": {"add_zero_attn": True, "add_bias_kv": True},
}


class Attention(nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **more)
        self.query, self.key, self.value = tq.QuantStub(), tq.QuantStub(), tq.QuantStub()
        self.dequant = tq.DeQuantStub()

    def forward(self, query, key, value, **masks):
        inputs = self.query(query), self.key(key), self.value(value)
        output, weights = self.attention(*inputs, **masks)
        return self.dequant(output), self.dequant(weights)


@pytest.mark.filterwarnings("ignore:must run observer")  # a product with a number is on the grid of its input
@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_is_observed_and_quantized(kind):
    more = ATTENTION[kind]
    model = Attention(**more).eval()
    model.qconfig = tq.default_qconfig
    sizes = [(3, 2, 8), (4, 2, more.get("kdim", 8)), (4, 2, more.get("vdim", 8))]
    inputs = [weft.randn(*size).transpose(0, int("batch_first" in more)) for size in sizes]
    prepared: Any = tq.prepare(model)
    assert type(prepared.attention) is quantizable.MultiheadAttention
    masks = {"attn_mask": weft.tensor([[False, True, False, False]] * 3)}
    masks["key_padding_mask"] = weft.tensor([[False, False, False, True], [False] * 4])
    for chosen in ({}, masks, {"average_attn_weights": False}):
        weft.testing.assert_close(prepared(*inputs, **chosen), model(*inputs, **chosen))
    result: Any = tq.convert(prepared)
    assert type(result.attention) is quantized.MultiheadAttention
    assert type(result.attention.linear_K) is quantized.Linear
    assert "attention.in_proj_weight" not in result.state_dict()
    weft.testing.assert_close(result(*inputs, **masks), model(*inputs, **masks), atol=0.1, rtol=0)


def test_attention_without_weights():
    layer, x = nn.MultiheadAttention(8, 2).eval(), weft.randn(3, 2, 8)
    layer.qconfig = tq.default_qconfig
    assert quantizable.MultiheadAttention.from_float(layer)(x, x, x, need_weights=False)[1] is None


def test_without_the_default_an_lstm_stays():
    model = Model()
    model.qconfig = tq.default_qconfig
    assert type(tq.prepare(model, prepare_custom_config_dict={}).lstm) is nn.LSTM


def _with(module):
    module.qconfig = tq.default_qconfig
    return module


MISTAKES = {
    "type": (lambda: quantizable.LSTM.from_float(nn.GRU(2, 2)), AssertionError, "Expected module type LSTM, got GRU"),
    "qconfig": (lambda: quantizable.LSTM.from_float(nn.LSTM(2, 2)), AssertionError, "must have 'qconfig'"),
    "projection": (
        lambda: quantizable.LSTM.from_float(_with(nn.LSTM(2, 2, proj_size=1))),
        NotImplementedError,
        "an LSTM with proj_size is not supported",
    ),
    "not observed": (
        lambda: quantized.LSTM.from_float(nn.LSTM(2, 2)),
        NotImplementedError,
        r"prepare\(\) the model with the LSTM, run it, and convert\(\) it",
    ),
    "floats": (lambda: quantized.LSTM.from_observed(nn.LSTM(2, 2)), AssertionError, "Expected a nn.quantizable.LSTM"),
    "no quantized form": (
        lambda: quantizable.LSTM.from_observed(nn.LSTM(2, 2)),
        NotImplementedError,
        "use nn.quantized.LSTM.from_observed for a LSTM",
    ),
    "attention without a batch": (
        lambda: quantizable.MultiheadAttention(4, 2)(*[weft.ones(3, 4)] * 3),
        AssertionError,
        r"inputs with a batch: use x.unsqueeze",
    ),
    "floats for attention": (
        lambda: quantized.MultiheadAttention.from_observed(nn.MultiheadAttention(4, 2)),
        AssertionError,
        "Expected a nn.quantizable.MultiheadAttention",
    ),
    "attention that is not observed": (
        lambda: quantized.MultiheadAttention.from_float(nn.MultiheadAttention(4, 2)),
        NotImplementedError,
        r"prepare\(\) the model with the MultiheadAttention",
    ),
    "no quantized form of attention": (
        lambda: quantizable.MultiheadAttention.from_observed(nn.MultiheadAttention(4, 2)),
        NotImplementedError,
        "use that of nn.quantized",
    ),
    "biases": (
        lambda: quantizable.LSTMCell.from_params(weft.ones(4, 1), weft.ones(4, 1), weft.ones(4)),
        AssertionError,
        "bi and bh must both be given, or neither",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text):
        call()
