"""The numeric suites: measures, records, and what needs graphs. The comparisons are in `test_programs.py`."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn
from weft.ao import quantization as tq
from weft.ao.nn.quantized import FloatFunctional, QFunctional
from weft.ao.ns import _numeric_suite as suite
from weft.ao.ns import _numeric_suite_fx as graphs
from weft.ao.ns.fx.qconfig_multi_mapping import QConfigMultiMapping
from weft.ao.ns.fx.utils import compute_cosine_similarity, compute_normalized_l2_error, compute_sqnr
from weft.errors import PreconditionError, UnsupportedError


def test_a_shadow_gets_the_numbers_of_the_input():
    quantized, shadow = QFunctional(), suite.Shadow(QFunctional(), FloatFunctional(), suite.ShadowLogger)
    shadow.orig_module.scale = quantized.scale = 0.05
    x = weft.quantize_per_tensor(weft.tensor([[0.5, 1.0]]), 0.1, 0, weft.quint8)
    calls = [("add", x, x), ("mul", x, x), ("add_relu", x, x), ("add_scalar", x, 0.5), ("mul_scalar", x, 2.0)]
    for name, *arguments in calls:
        result = getattr(shadow, name)(*arguments)
        assert weft.equal(result.int_repr(), getattr(quantized, name)(*arguments).int_repr())
    assert weft.equal(shadow.cat([x, x]).int_repr(), quantized.cat([x, x]).int_repr())
    stats = shadow.logger.stats
    assert len(stats["float"]) == len(stats["quantized"]) == 6
    for a, b in zip(stats["float"], stats["quantized"], strict=True):
        assert (a - b.dequantize()).abs().max() <= 0.05


def test_loggers_of_users_take_part():
    class Largest(suite.ShadowLogger):
        def forward(self, x, *more):
            self.stats["quantized"].append(x.dequantize().max())
            self.stats["float"].append(more[0].max())

    model = tq.QuantWrapper(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).eval()
    model.qconfig = tq.default_qconfig
    prepared, x = tq.prepare(model), weft.ones(3, 2)
    prepared(x)
    found = suite.compare_model_stub(model, tq.convert(prepared), {nn.Linear}, x, logger_cls=Largest)
    assert list(found) == ["module.0.stats"]
    assert found["module.0.stats"]["float"][0].shape == ()
    assert suite.Logger().stats == {}


@pytest.mark.filterwarnings("ignore:must run observer")  # a sum with a number is on the grid of its input
def test_sums_with_numbers_are_not_observed_in_either_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.sum, self.shift = tq.QuantStub(), FloatFunctional(), FloatFunctional()

        def forward(self, x):
            x = self.quant(x)
            return self.shift.add_scalar(self.sum.add(x, x), 0.5)

    model = Model().eval()
    model.qconfig = tq.default_qconfig
    prepared, x = tq.prepare(model), weft.ones(3, 2)
    prepared(x)
    assert list(suite.compare_model_outputs(model, tq.convert(prepared), x)) == ["quant.stats", "sum.stats"]


def test_weights_of_layers_at_the_top_have_keys_of_their_own():
    model = nn.Sequential(nn.Linear(3, 2))
    quantized = tq.quantize_dynamic(copy.deepcopy(model))
    pairs = suite.compare_weights(model.state_dict(), quantized.state_dict())
    assert list(pairs) == ["0._packed_params._packed_params"]
    pair = pairs["0._packed_params._packed_params"]
    assert weft.equal(pair["float"], model[0].weight)
    assert pair["quantized"].is_quantized


def test_measures():
    x, y = weft.tensor([3.0, 4.0]), weft.tensor([3.0, 4.5])
    assert compute_sqnr(x, y).item() == pytest.approx(20)
    assert compute_normalized_l2_error(x, y).item() == pytest.approx(0.1)
    assert compute_cosine_similarity(x, x).item() == pytest.approx(1)
    q = weft.quantize_per_tensor(y, 0.5, 0, weft.quint8)
    assert [e.item() for e in compute_normalized_l2_error((x, x), (q, x))] == pytest.approx([0.1, 0])


def _results():
    def record(value):
        return [{"values": [weft.tensor([value])], "index_within_arg": 0, "index_of_arg": 0}]

    return {"fc": {"weight": {"a": record(2.0), "b": record(3.0)}}}


def test_records_are_compared():
    results = _results()
    graphs.extend_logger_results_with_comparison(results, "a", "b", compute_normalized_l2_error, "error")
    assert [x.item() for x in results["fc"]["weight"]["b"][0]["error"]] == [0.5]
    broken = _results()
    broken["fc"]["weight"]["b"][0]["index_of_arg"] = 1
    with pytest.raises(PreconditionError, match=r"a has no record for argument \(0, 1\) of b"):
        graphs.extend_logger_results_with_comparison(broken, "a", "b", compute_sqnr, "error")
    with pytest.raises(PreconditionError, match="c not found in results, which have a, b"):
        graphs.extend_logger_results_with_comparison(_results(), "a", "c", compute_sqnr, "error")


def test_loggers_of_graphs():
    names = ("ref", "prev", "model", "name", "kind", "kind", "node_output")
    logger, compared = graphs.OutputLogger(*names, 0, 0, "fc"), graphs.OutputComparisonLogger(*names, 0, 0, "fc")
    compared.comparison_fn = compute_normalized_l2_error
    x, y = weft.ones(2), weft.ones(2) * 2
    assert logger(x) is x
    assert compared(x, y) is x
    graphs.loggers_set_save_activations(compared, False)
    graphs.loggers_set_enabled(logger, False)
    logger(x)
    compared(x, y)
    assert (len(logger.stats), len(compared.stats), len(compared.comparisons)) == (1, 1, 2)
    with pytest.raises(
        UnsupportedError, match=r"prepare_n_shadows_model\(custom_prepare_fn=...\): shadows are those of quantize_fx"
    ):
        graphs.prepare_n_shadows_model(nn.Linear(1, 1), (), QConfigMultiMapping(), None, custom_prepare_fn=print)
