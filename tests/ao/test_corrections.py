"""Equalization of weights before a model is quantized, and correction of biases after it."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import pytest

import weft
from weft import nn
from weft.ao import quantization as tq
from weft.ao.quantization import _correct_bias as correct
from weft.ao.quantization import _equalize as equal

CHAINS = {
    "linear": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6)), (2, 3)),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 6, 1)),
        (2, 3, 5, 5),
    ),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", CHAINS)
def test_equal_ranges_and_the_same_results(kind, fused):
    weft.manual_seed(0)
    make, size = CHAINS[kind]
    model, x = make().eval(), weft.randn(*size)
    if fused:
        tq.fuse_modules(model, [["0", "1"], ["2", "3"]], inplace=True)
    result = equal.equalize(model, [["0", "2", "4"]], 1e-6, inplace=False)
    first, second, last = (module[0] if fused and name != "4" else module for name, module in _named(result, "024"))
    for before, after in ((first, second), (second, last)):
        ranges = equal.channel_range(before.weight, 0), equal.channel_range(after.weight, 1)
        weft.testing.assert_close(*ranges, rtol=1e-4, atol=1e-5)
    weft.testing.assert_close(result(x), model(x))
    assert equal.equalize(model, [[model[0], model[2]], [model[2], model[4]]], 1e-6) is model
    weft.testing.assert_close(list(model.parameters()), list(result.parameters()))


def _named(model, names):
    return [(name, model.get_submodule(name)) for name in names]


def test_a_channel_whose_weights_are_equal_stays():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 1)
    first.weight = nn.Parameter(weft.tensor([[0.0, 0.0], [1.0, -3.0]]))
    second.weight = nn.Parameter(weft.tensor([[2.0, 1.0]]))
    equal.cross_layer_equalization(first, second)
    assert first.weight[0].tolist() == [0, 0]
    assert second.weight[0, 0].item() == 2
    assert first.weight.isfinite().all()


MISTAKES = {
    "layers": (
        lambda: equal.cross_layer_equalization(nn.ReLU(), nn.Linear(2, 2)),
        ValueError,
        "module type not supported: ReLU; equalization is for Conv1d",
    ),
    "sizes": (
        lambda: equal.cross_layer_equalization(nn.Linear(2, 3), nn.Linear(2, 2)),
        TypeError,
        "Number of output channels of first arg do not match .*: 3 and 2",
    ),
    "one": (lambda: equal.equalize(nn.Sequential(nn.Linear(2, 2)), [["0"]]), ValueError, "at least two modules"),
    "items": (
        lambda: equal.equalize(nn.Linear(2, 2), [[cast("Any", 0), "0"]]),
        TypeError,
        "item must be a nn.Module or a string, but got a int",
    ),
    "others": (lambda: equal.equalize(nn.Linear(2, 2), [[nn.ReLU(), ""]]), ValueError, "module is not in the model"),
    "keys": (lambda: equal.converged({"a": None}, {"b": None}), ValueError, r"but got \['a'\] and \['b'\]"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("batches", [None, 2])
def test_biases_come_back(kind, batches):
    weft.manual_seed(0)
    make, size = CHAINS[kind]
    model = tq.QuantWrapper(make()).eval()
    data = [(weft.rand(*size), 0) for _ in range(4)]
    model.qconfig = tq.default_qconfig
    quantized = tq.quantize(model, tq.default_eval_fn, [[*data, (data[0][0] * 4, 0)]])  # a wider grid
    names = ["module.0", "module.2", "module.4"]
    layers: list[Any] = [quantized.get_submodule(name) for name in names]
    for layer in layers:
        layer.set_weight_bias(layer.weight(), layer.bias().detach() + 0.2)
    before = copy.deepcopy(quantized)
    correct.bias_correction(model, quantized, data, neval_batches=batches)
    for name, layer in zip(names, layers, strict=True):
        assert quantized.get_submodule(name).orig_module is layer
        bias: Any = model.get_submodule(name).bias
        np.testing.assert_allclose(layer.bias().numpy(), bias.detach().numpy(), atol=0.05)
    x, expected = data[0][0], model(data[0][0])
    assert (quantized(x) - expected).abs().mean() < 0.1 * (before(x) - expected).abs().mean()


def test_names_and_parameters():
    assert correct.parent_child_names("a.b.c") == ("a.b", "c")
    assert correct.parent_child_names("a") == ("", "a")
    layer = nn.Linear(1, 1)
    assert correct.get_param(layer, "weight") is layer.weight
    assert correct.get_param(layer, "scale") is None
    assert correct.get_module(nn.Sequential(layer), "0") is layer
