"""The numeric suite of graphs: what the recorded programs do not show."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn
from weft.ao.ns import _numeric_suite_fx as suite
from weft.ao.ns.fx.graph_matcher import GraphMatchingException
from weft.ao.ns.fx.qconfig_multi_mapping import QConfigMultiMapping
from weft.ao.ns.fx.utils import compute_sqnr
from weft.ao.quantization import (
    QConfigMapping,
    default_dynamic_qconfig,
    default_per_channel_qconfig,
    default_qconfig,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from weft.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx
from weft.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


class Net(nn.Module):
    """Layers that are fused, and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Linear(2, 3)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        x = F.relu(self.norm(self.conv(x)) + x)
        return F.relu(self.fc(x.mean([2, 3])) * 0.5)


def models() -> tuple[Net, weft.fx.GraphModule, weft.fx.GraphModule, weft.Tensor]:
    weft.manual_seed(0)
    model, x = Net().eval(), weft.randn(4, 2, 5, 5)
    prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(), (x,))
    prepared(x)
    return model, prepared, convert_fx(prepared), x


@pytest.mark.parametrize("first", ["float", "prepared"])
def test_loggers_see_every_run_of_both_models_and_leave_them_as_they_are(first):
    model, prepared, quantized, x = models()
    reference = model if first == "float" else prepared
    a, b = suite.add_loggers("a", reference, "b", quantized, suite.OutputLogger, should_log_inputs=True)
    for batch in (x, x * 0.9):
        assert weft.equal(a(batch), reference(batch))
        assert weft.equal(b(batch), quantized(batch))
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "b")
    assert list(results) == ["conv", "relu", "fc", "relu_1"]
    suite.extend_logger_results_with_comparison(results, "a", "b", compute_sqnr, "sqnr")
    for kinds in results.values():
        assert list(kinds) == ["node_input", "node_output"]
        (record,) = kinds["node_output"]["b"]
        assert len(record["values"]) == len(record["sqnr"]) == 2
        assert min(record["sqnr"]) > 20
        assert record["values"][0].is_quantized
    inputs = results["relu"]["node_input"]["b"]
    assert [record["index_of_arg"] for record in inputs] == [0, 1]
    assert not any("logger" in name for name, _ in quantized.named_modules())


def test_results_go_by_the_names_of_either_model():
    model, _, quantized, x = models()
    a, b = suite.add_loggers("a", model, "b", quantized, suite.OutputLogger)
    a(x)
    b(x)
    assert list(suite.extract_logger_info(a, b, suite.OutputLogger, "a")) == ["norm", "relu", "fc", "relu_1"]


def test_a_shadow_gets_the_inputs_of_the_quantized_operation():
    model, _, quantized, x = models()
    shadows = suite.add_shadow_loggers("a", model, "b", quantized, suite.OutputLogger, should_log_inputs=True)
    assert weft.equal(shadows(x), quantized(x))
    results = suite.extract_shadow_logger_info(shadows, suite.OutputLogger, "b")
    assert list(results) == ["conv", "fc", "relu_1"]  # a sum has two inputs
    of_fc = results["fc"]
    (numbers,), (grid,) = (of_fc["node_input"][side][0]["values"] for side in ("a", "b"))
    assert weft.equal(numbers, grid.dequantize())
    assert weft.allclose(of_fc["node_output"]["a"][0]["values"][0], model.fc(numbers), atol=1e-6)


@pytest.mark.parametrize("kind", ["dynamic", "training"])
def test_weights_of_other_kinds_of_quantization(kind):
    model = nn.Sequential(nn.LSTM(3, 4), weft.nn.Linear(4, 2))
    x = weft.randn(5, 2, 3)
    if kind == "dynamic":

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rnn, self.fc = model

            def forward(self, x):
                return self.fc(self.rnn(x)[0])

        prepared = prepare_fx(Model().eval(), QConfigMapping().set_global(default_dynamic_qconfig), (x,))
        names, counts = ["rnn", "fc"], [2, 1]
    else:
        prepared = prepare_qat_fx(Net().train(), get_default_qat_qconfig_mapping(), (x,))
        prepared(weft.randn(4, 2, 5, 5))
        prepared.eval()
        names, counts = ["conv", "fc"], [1, 1]
    results = suite.extract_weights("a", prepared, "b", convert_fx(prepared))
    assert list(results) == names
    for count, kinds in zip(counts, results.values(), strict=True):
        (one,), (other,) = kinds["weight"]["a"], kinds["weight"]["b"]
        assert len(one["values"]) == len(other["values"]) == count
        if kind == "dynamic":
            assert compute_sqnr(one["values"][0], other["values"][0]) > 20


def test_models_that_do_not_compute_the_same_are_refused():
    _, _, quantized, _ = models()
    other = nn.Sequential(nn.Conv2d(2, 2, 3), nn.Sigmoid())
    with pytest.raises(
        GraphMatchingException, match=r"_1 of the first one computes Sigmoid, and add of the second one"
    ):
        suite.extract_weights("a", other, "b", quantized)
    with pytest.raises(
        GraphMatchingException, match=r"has 1 operations and the second one 4; add .add. is only in one"
    ):
        suite.add_loggers("a", nn.Sequential(nn.Conv2d(2, 2, 3)), "b", quantized, suite.OutputLogger)
    with pytest.raises(NotImplementedError, match="unmatchable_types_map: operators are matched by the table"):
        suite.add_shadow_loggers("a", other, "b", quantized, suite.OutputLogger, unmatchable_types_map={})


def test_a_relu_after_folded_normalisation_belongs_to_the_layer():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = weft.randn(8, 4)
    prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(), (x,))
    prepared(x)
    a, b = suite.add_loggers("a", model, "b", convert_fx(prepared), suite.OutputLogger)
    a(x)
    b(x)
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "b")
    assert list(results) == ["_2", "_3"]
    suite.extend_logger_results_with_comparison(results, "a", "b", compute_sqnr, "sqnr")
    assert min(kinds["node_output"]["b"][0]["sqnr"][0] for kinds in results.values()) > 25


def prepared_and_converted(model: nn.Module, *inputs: weft.Tensor, mapping: QConfigMapping | None = None):
    prepared = prepare_fx(model.eval(), mapping or get_default_qconfig_mapping(), inputs)
    prepared(*inputs)
    return prepared, convert_fx(prepared)


def test_quantized_operations_can_be_the_shadows():
    weft.manual_seed(0)
    x = weft.randn(4, 1, 5, 5)
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.Conv2d(1, 1, 1), nn.ReLU())
    prepared, quantized = prepared_and_converted(model, x)
    shadows = suite.add_shadow_loggers("int8", quantized, "float", prepared, suite.OutputLogger)
    assert weft.equal(shadows(x), prepared(x))
    results = suite.extract_shadow_logger_info(shadows, suite.OutputLogger, "float")
    suite.extend_logger_results_with_comparison(results, "float", "int8", compute_sqnr, "sqnr")
    ratios = [records["node_output"]["int8"][0]["sqnr"][0].item() for records in results.values()]
    assert len(ratios) == 3
    assert min(ratios) > 20
    assert shadows._2_input_scale_0 == quantized.get_submodule("0").scale
    assert shadows._0_input_zero_point_0 == getattr(quantized, "0_input_zero_point_0")


def test_quantized_operations_can_shadow_quantized_ones():
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weft.randn(3, 3))

        def forward(self, x):
            return F.linear(x, self.weight)

    x = weft.randn(4, 3)
    _, quantized = prepared_and_converted(Functional(), x)
    shadows = suite.add_shadow_loggers("a", quantized, "b", copy.deepcopy(quantized), suite.OutputLogger)
    shadows(x)
    (records,) = suite.extract_shadow_logger_info(shadows, suite.OutputLogger, "b").values()
    a, b = (records["node_output"][name][0]["values"][0] for name in "ab")
    assert weft.equal(a.int_repr(), b.int_repr())


def test_modules_functions_and_methods_match_each_other():
    class Modules(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.pool, self.sigmoid = nn.LeakyReLU(), nn.MaxPool2d(2), nn.Sigmoid()

        def forward(self, x):
            return self.sigmoid(self.pool(self.act(x)))

    class Functions(nn.Module):
        def forward(self, x):
            return F.max_pool2d(F.leaky_relu(x), 2).sigmoid()

    x = weft.randn(1, 1, 4, 4)
    a, b = suite.add_loggers("a", Modules(), "b", Functions(), suite.OutputLogger)
    assert weft.equal(a(x), b(x))
    assert list(suite.extract_logger_info(a, b, suite.OutputLogger, "a")) == ["act", "pool", "sigmoid"]


def test_recurrent_layers_have_shadows_with_the_same_states():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 4)

        def forward(self, x, h, c):
            return self.rnn(x, (h, c))

    weft.manual_seed(0)
    model = Recurrent().eval()
    inputs = weft.randn(5, 2, 3), weft.randn(1, 2, 4), weft.randn(1, 2, 4)
    _, quantized = prepared_and_converted(
        copy.deepcopy(model), *inputs, mapping=QConfigMapping().set_global(default_dynamic_qconfig)
    )
    shadows = suite.add_shadow_loggers("a", model, "b", quantized, suite.OutputLogger)
    shadows(*inputs)
    (records,) = suite.extract_shadow_logger_info(shadows, suite.OutputLogger, "b").values()
    y, (h, c) = records["node_output"]["a"][0]["values"][0]
    expected, (h_expected, c_expected) = model(*inputs)
    assert all(map(weft.equal, (y, h, c), (expected, h_expected, c_expected)))
    assert compute_sqnr(y, records["node_output"]["b"][0]["values"][0][0]) > 20


def test_functions_that_are_quantized_dynamically_match():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weft.randn(3, 3))

        def forward(self, x):
            return F.linear(F.relu(F.linear(x, self.weight)), self.weight)

    x = weft.randn(4, 3)
    prepared, quantized = prepared_and_converted(
        Twice(), x, mapping=QConfigMapping().set_global(default_dynamic_qconfig)
    )
    results = suite.extract_weights("a", prepared, "b", quantized)
    suite.extend_logger_results_with_comparison(results, "a", "b", compute_sqnr, "sqnr")
    assert [records["weight"]["b"][0]["sqnr"][0] > 25 for records in results.values()] == [True, True]


def test_inputs_of_sums_with_numbers_are_compared():
    class Sums(nn.Module):
        def forward(self, x):
            return 2 * (1 + x)

    x = weft.randn(4, 3)
    prepared, quantized = prepared_and_converted(Sums(), x)
    a, b = suite.add_loggers("a", prepared, "b", quantized, suite.OutputLogger, should_log_inputs=True)
    a(x)
    b(x)
    results = suite.extract_logger_info(a, b, suite.OutputLogger, "a")
    suite.extend_logger_results_with_comparison(results, "a", "b", compute_sqnr, "sqnr")
    assert [records["node_input"]["b"][0]["sqnr"][0] > 25 for records in results.values()] == [True, True]


def test_results_of_training_are_rounded():
    x = weft.randn(4, 3)
    prepared = prepare_qat_fx(nn.Sequential(nn.Linear(3, 3)).train(), get_default_qat_qconfig_mapping(), (x,))
    prepared(x)
    prepared.apply(weft.ao.quantization.disable_observer)
    a, b = suite.add_loggers("a", prepared, "b", convert_fx(prepared.eval()), suite.OutputLogger)
    assert weft.equal(a(x), prepared(x))
    b(x)
    (records,) = suite.extract_logger_info(a, b, suite.OutputLogger, "b").values()
    assert weft.equal(records["node_output"]["a"][0]["values"][0], prepared(x))


def test_each_operation_can_have_a_shadow_for_each_qconfig(capsys):
    weft.manual_seed(0)
    model, x = Net().eval(), weft.randn(4, 2, 5, 5)
    configs = QConfigMultiMapping().set_global([default_qconfig, default_dynamic_qconfig])
    configs.set_module_name("fc", [default_qconfig])
    prepared = suite.prepare_n_shadows_model(model, (x,), configs, None)
    assert [name for name, _ in prepared.named_children() if name.startswith("shadow_wrapper")] == [
        *("shadow_wrapper_0_1", "shadow_wrapper_0_2", "shadow_wrapper_1_1", "shadow_wrapper_1_2"),
        *("shadow_wrapper_2_1", "shadow_wrapper_3_1", "shadow_wrapper_3_2"),
    ]
    assert weft.equal(prepared(x), model(x))
    quantized = suite.convert_n_shadows_model(prepared)
    suite.loggers_set_enabled(quantized, True)
    assert weft.equal(quantized(x), model(x))
    results = suite.extract_results_n_shadows_model(quantized)
    records = results["model"]["node_output"]
    (own,), (static,) = records["subgraph_2_0"], records["subgraph_2_1"]
    assert (own["ref_node_name"], own["prev_node_name"], own["fqn"]) == ("fc", "fc", "fc")
    assert weft.equal(static["comparisons"][0], compute_sqnr(static["values"][0], own["values"][0]))
    assert static["comparisons"][0] > 20
    assert static["qconfig_str"] == str(default_qconfig)
    suite.print_comparisons_n_shadows_model(results)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["node_name", "node_type", "fqn", "0", "1"]
    assert [line.split()[0] for line in lines[2:]] == ["conv", "add", "fc", "mul"]


def test_lists_of_qconfigs_are_filled_up():
    configs = QConfigMultiMapping().set_object_type(nn.Linear, [default_qconfig, default_dynamic_qconfig])
    configs.set_module_name("a", [default_qconfig, None, default_qconfig])
    configs.set_module_name_regex("b", [default_qconfig, default_dynamic_qconfig, default_per_channel_qconfig])
    held = [
        [mapping.object_type_qconfigs[nn.Linear], mapping.module_name_qconfigs["a"]]
        for mapping in configs.qconfig_mappings_list
    ]
    assert held == [[default_qconfig, default_qconfig], [default_dynamic_qconfig, None], [None, None]]
    mappings = [QConfigMapping().set_module_name("a", None), QConfigMapping().set_global(default_qconfig)]
    again = QConfigMultiMapping.from_list_qconfig_mapping(mappings)
    assert [x.module_name_qconfigs for x in again.qconfig_mappings_list] == [{"a": None}, {"a": None}]
    assert repr(again).startswith("QConfigMultiMapping [\nQConfigMapping (\n global_qconfig")
