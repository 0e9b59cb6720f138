"""Comparisons of two runs of a model."""

from __future__ import annotations

import copy
import math

import pytest

import weft
from weft import nn
from weft.ao import quantization
from weft.ao.quantization.quantize_fx import convert_fx, prepare_fx
from weft.errors import ArgumentError, ShapeError, ValueRangeError
from weft.utils import compare


@pytest.fixture
def model():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


@pytest.fixture
def x():
    return weft.arange(40.0).reshape(5, 8) / 40


def test_equal_runs_draw_the_same_numbers(model, x):
    result = compare(model, copy.deepcopy(model), x)
    assert result.first is None
    assert [layer.name for layer in result.layers] == ["0", "1", "2", "3", ""]
    assert all(layer.sqnr == math.inf and not layer.departs for layer in result.layers)
    assert "no layer departs by more than 0.001" in str(result)


def test_the_first_layer_that_departs_is_named(model, x):
    other = copy.deepcopy(model.eval())
    with weft.no_grad():
        other[3].bias += 0.5
    result = compare(model, other, x)
    first = result.first
    assert (first.name, first.kind, first.size) == ("3", "Linear", (5, 4))
    assert first.absolute == pytest.approx(0.5, rel=1e-5)
    rms = model(x).square().mean().sqrt().item()
    assert first.relative == pytest.approx(0.5 / rms, rel=1e-4)
    assert first.sqnr == pytest.approx(-20 * math.log10(0.5 / rms), rel=1e-3)
    assert [layer.name for layer in result.by_error()] == ["3", "", "0", "1", "2"]
    lines = str(result).splitlines()
    assert lines[0].split() == ["layer", "module", "size", "absolute", "relative", "SQNR"]
    assert lines[2].split()[:3] == ["3", "Linear", "5x4"]
    assert lines[2].endswith("<- first")
    assert lines[-1] == "first to depart by more than 0.001: 3 (Linear)"


def test_one_model_in_two_contexts(model, x):
    result = compare(model.eval(), model, x, around_b=lambda: weft.autocast("cpu", weft.bfloat16))
    assert result.first.name == "0"
    assert 0.001 < result.first.relative < 0.01
    assert compare(model, model, x, tolerance=0.1, around_b=lambda: weft.autocast("cpu", weft.bfloat16)).first is None


def test_a_compiled_model_is_compared_layer_by_layer(model, x):
    result = compare(model.eval(), weft.compile(model), x, tolerance=1e-5)
    assert [layer.name for layer in result.layers] == ["0", "1", "2", "3", ""]
    assert result.first is None


@pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")
def test_a_quantized_model_is_compared_by_its_numbers(x):
    model = quantization.QuantWrapper(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))).eval()
    model.qconfig = quantization.get_default_qconfig()
    prepared = quantization.prepare(quantization.fuse_modules(model, ["module.0", "module.1"]))
    prepared(x)
    result = compare(model, quantization.convert(prepared), x, tolerance=0.2)
    kinds = {layer.name: layer.kind for layer in result.layers}
    assert kinds["quant"] == "QuantStub / Quantize"
    assert kinds["module.0"] == "Linear+ReLU / LinearReLU"
    assert "module.1" not in kinds
    assert result.first is None
    assert all(layer.sqnr > 25 for layer in result.layers)


class _Residual(nn.Module):
    """A ReLU that is called twice: it is folded into a convolution once, and computed with a sum once."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU()
        self.last, self.last_norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        y = self.last_norm(self.last(self.relu(self.norm(self.conv(x)))))
        y = self.relu(y + x)
        return nn.functional.relu(self.head(y.mean([2, 3])))


@pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_fused_layers_are_compared_with_the_last_layer_that_is_folded_into_them(is_reversed):
    weft.manual_seed(0)
    model, x = _Residual().eval(), weft.randn(4, 2, 5, 5)
    for norm in (model.norm, model.last_norm):
        norm.running_mean.fill_(0.5)
    prepared = prepare_fx(copy.deepcopy(model), quantization.get_default_qconfig_mapping(), (x,))
    prepared(x)
    pair = (model, convert_fx(prepared))
    result = compare(*(reversed(pair) if is_reversed else pair), x, tolerance=0.1)
    kinds = {layer.name: tuple(layer.kind.split(" / ")) for layer in result.layers}
    expected = {
        "conv": ("Conv2d+BatchNorm2d+ReLU", "ConvReLU2d"),
        "last": ("Conv2d+BatchNorm2d", "Conv2d"),
        "relu": ("ReLU",),
        "head": ("Linear", "LinearReLU"),
        "": ("_Residual", "GraphModule"),
    }
    assert kinds == {name: pair[::-1] if is_reversed else pair for name, pair in expected.items()}
    assert result.first is None
    assert (result.only_a, result.only_b) == ([], [])
    head = next(layer for layer in result.layers if layer.name == "head")
    assert head.reason.startswith("kinds differ: the first ends in ")
    assert math.isnan(head.relative)
    assert head is result.by_error()[-1]
    assert "kinds differ" in str(result)


def test_what_cannot_be_compared_says_why(model, x):
    other = copy.deepcopy(model)
    other[3] = nn.Sequential(nn.Linear(16, 3))
    result = compare(model, other, x)
    assert result.first.reason == "sizes differ: [(5, 4)] and [(5, 3)]"
    assert (result.only_a, result.only_b) == ([], ["3.0"])
    assert "only in the second run: 3.0" in str(result)


def test_calls_of_one_module_are_told_apart(x):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, *, x):
            return {"y": self.layer(self.layer(x)), "n": 3}

    twice = Twice()
    assert [layer.name for layer in compare(twice, twice, {"x": x}).layers] == ["layer", "layer#2", ""]


def test_numbers_that_are_none(x):
    class Root(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift

        def forward(self, x):
            return (x - self.shift).sqrt()

    assert compare(Root(0.5), Root(0.5), x).first is None  # nan in both
    assert compare(Root(0.0), Root(0.5), x).first.relative == math.inf


def test_mistakes_leave_no_hooks_behind(model):
    with pytest.raises(ArgumentError, match="compare: model_b must be a Module, but got int"):
        compare(model, 3, weft.ones(1))
    for wrong in ("a", None, True):
        with pytest.raises(ArgumentError, match=f"^compare: tolerance must be a number, but got {wrong!r}$"):
            compare(model, model, weft.ones(1), tolerance=wrong)
    with pytest.raises(ValueRangeError, match="tolerance must be 0 or more, but got -1"):
        compare(model, model, weft.ones(1), tolerance=-1)
    with pytest.raises(ShapeError):
        compare(model, model, weft.ones(3))
    assert not any(module._forward_hooks for module in model.modules())
