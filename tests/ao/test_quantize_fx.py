"""Graph-mode quantization: what the recorded programs do not show of `quantize_fx`."""

from __future__ import annotations

import copy
import io

import pytest

import weft
from weft import nn
from weft.ao.quantization import (
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    default_dynamic_qconfig,
    default_qconfig,
    float_qparams_weight_only_qconfig,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from weft.ao.quantization.backend_config import BackendConfig, get_fbgemm_backend_config, get_native_backend_config
from weft.ao.quantization.fx.custom_config import PrepareCustomConfig
from weft.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, fuse_fx, prepare_fx, prepare_qat_fx
from weft.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


class Net(nn.Module):
    """A layer that is called twice, and functions."""

    version = 7

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)
        self.weight = nn.Parameter(weft.randn(4, 4))

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        x = self.fc(self.fc(x)) + x
        return F.linear(x, self.weight) * 2


def prepared_net() -> tuple[Net, weft.Tensor, weft.fx.GraphModule]:
    weft.manual_seed(0)
    model, x = Net().eval(), weft.randn(8, 3, 6, 6)
    prepared = prepare_fx(model, get_default_qconfig_mapping(), (x,))
    prepared(x)
    return model, x, prepared


def test_numbers_stay_close_and_models_as_they_are():
    model, x, prepared = prepared_net()
    before, observed = model(x), prepared.state_dict()
    quantized = convert_fx(prepared)
    y = quantized(x)
    assert (y - before).norm() < 0.05 * before.norm()
    assert weft.equal(model(x), before)
    assert not any(hasattr(module, "activation_post_process") for module in model.modules())
    assert str(observed) == str(prepared.state_dict())
    assert weft.equal(convert_fx(copy.deepcopy(prepared))(x), y)


def test_a_layer_that_is_called_twice_has_a_grid_for_each_call():
    _, _, prepared = prepared_net()
    quantized = convert_fx(prepared)
    calls = [node.target for node in quantized.graph.nodes if "fc" in node.name and node.op == "call_module"]
    assert calls == ["fc", "fc_0"]
    assert quantized.fc.scale != quantized.fc_0.scale
    assert weft.equal(quantized.fc.weight().int_repr(), quantized.fc_0.weight().int_repr())


def test_a_layer_that_is_called_twice_is_not_fused():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

        def forward(self, x):
            return self.norm(self.conv(self.conv(x)))

    model, x = Twice().eval(), weft.randn(2, 2, 3, 3)
    model.norm.running_mean.fill_(0.5)
    fused = fuse_fx(model)
    assert isinstance(fused.norm, nn.BatchNorm2d)
    assert weft.allclose(fused(x), model(x), atol=1e-6)


@pytest.mark.parametrize("which", ["prepared", "converted"])
def test_files_keep_models(which):
    _, x, prepared = prepared_net()
    expected = convert_fx(prepared)(x)
    file = io.BytesIO()
    weft.save(prepared if which == "prepared" else convert_fx(prepared), file)
    file.seek(0)
    loaded = weft.load(file, weights_only=False)
    result = convert_fx(loaded)(x) if which == "prepared" else loaded(x)
    assert weft.equal(result, expected)


def test_a_state_dict_carries_grids_and_weights_to_another_model():
    _, x, prepared = prepared_net()
    quantized = convert_fx(prepared)
    other = prepare_fx(Net().eval(), get_default_qconfig_mapping(), (x,))
    other(weft.randn(8, 3, 6, 6))
    other = convert_fx(other)
    assert not weft.equal(other(x), quantized(x))
    other.load_state_dict(quantized.state_dict())
    assert weft.equal(other(x), quantized(x))


def test_numbers_as_arguments_move_the_grid():
    class Shift(nn.Module):
        def forward(self, x):
            return weft.relu(x * 3) + 100

    x = weft.linspace(-1, 1, 50)
    prepared = prepare_fx(Shift().eval(), get_default_qconfig_mapping("qnnpack"), (x,))
    prepared(x)
    error = (convert_fx(prepared)(x) - Shift()(x)).abs().max()  # x is on the grid of -1 to 103, as in PyTorch
    assert error.item() == pytest.approx(0.9420, abs=1e-3)


def test_sizes_are_not_observed():
    class Reshaped(nn.Module):
        def forward(self, x):
            rows = x.size(0) * 2
            return F.relu(x).reshape(rows, x.shape[1] // 2)

    x = weft.randn(4, 6)
    prepared = prepare_fx(Reshaped().eval(), get_default_qconfig_mapping(), (x,))
    prepared(x)
    assert convert_fx(prepared)(x).shape == (8, 3)


def test_a_size_times_a_tensor_moves_the_grid():
    class Scaled(nn.Module):
        def forward(self, x):
            return F.hardswish(x).size(0) * F.relu(x)

    x = weft.randn(4, 3)
    prepared = prepare_fx(Scaled().eval(), get_default_qconfig_mapping("qnnpack"), (x,))
    prepared(x)
    assert (convert_fx(prepared)(x) - 4 * F.relu(x)).abs().max() < 0.1


@pytest.mark.parametrize("function", [F.sigmoid, weft.sigmoid, F.tanh, weft.tanh, F.hardsigmoid])
def test_functions_with_a_known_range_have_a_fixed_grid(function):
    class Bounded(nn.Module):
        def forward(self, x):
            return function(x)

    prepared = prepare_fx(Bounded().eval(), get_default_qconfig_mapping(), (weft.randn(3),))
    assert type(prepared.activation_post_process_1) is weft.ao.quantization.FixedQParamsObserver


def test_training_with_rounding_of_weights_for_dynamic_products():
    mapping = QConfigMapping().set_global(weft.ao.quantization.default_dynamic_qat_qconfig)
    x = weft.randn(8, 4)
    prepared = prepare_qat_fx(nn.Sequential(nn.Linear(4, 4)).train(), mapping, (x,))
    prepared(x).sum().backward()
    converted = convert_fx(prepared.eval())
    assert type(converted.get_submodule("0")) is weft.ao.nn.quantized.dynamic.Linear
    assert (converted(x) - prepared(x)).abs().max() < 0.05


def test_training_can_be_compiled():
    x = weft.randn(8, 4)
    prepared = prepare_qat_fx(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()).train(), get_default_qat_qconfig_mapping(), (x,)
    )
    plain = copy.deepcopy(prepared)(x)
    assert weft.allclose(weft.compile(prepared)(x), plain, atol=1e-6)


def test_a_dynamic_function_becomes_a_layer():
    model, x, _ = prepared_net()
    mapping = QConfigMapping().set_global(default_dynamic_qconfig)
    quantized = convert_fx(prepare_fx(model, mapping, (x,)))
    assert type(quantized.get_submodule("_linear_0")) is weft.ao.nn.quantized.dynamic.Linear
    assert (quantized(x) - model(x)).norm() < 0.05 * model(x).norm()


def test_what_graph_mode_refuses():
    model = nn.Sequential(nn.Linear(2, 2)).eval()
    mapping = QConfigMapping().set_global(default_qconfig)
    with pytest.raises(ValueError, match=r"input model must be a GraphModule, Got type:.*convert what prepare_fx"):
        convert_fx(model)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AssertionError, match="incoming model must be produced by prepare_fx"):
        convert_fx(weft.fx.symbolic_trace(model))
    for entry in (default_qconfig, None):
        with pytest.raises(
            AssertionError, match=r"qconfig_mapping must be a QConfigMapping, but got (QConfig|NoneType)"
        ):
            prepare_fx(model, entry, ())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="expected a PrepareCustomConfig or a dict, but got a QConfig"):
        prepare_fx(model, mapping, (), default_qconfig)  # pyright: ignore[reportArgumentType]
    with pytest.raises(NotImplementedError, match="models are quantized for get_native_backend_config"):
        prepare_fx(model, mapping, (), backend_config=BackendConfig("tensorrt"))
    with pytest.raises(NotImplementedError, match="no key 'standalone_modules'; there are"):
        prepare_fx(model, mapping, (), {"standalone_modules": []})
    with pytest.raises(
        ValueError, match="a kind of quantization is one of dynamic, static, qat, weight_only, but got 'fast'"
    ):
        PrepareCustomConfig.from_dict({"float_to_observed_custom_module_class": {"fast": {}}})
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        fuse_fx(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)).train())
    with pytest.raises(TypeError, match="graph mode quantizes modules, but got a function"):
        prepare_fx(lambda x: x, mapping, ())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="a QConfigMapping has QConfigs or None, but _0 got a int"):
        prepare_fx(model, {"": 3}, ())
    prepare_fx(model, mapping, (), backend_config=get_fbgemm_backend_config())
    prepared = prepare_fx(model, mapping, (), backend_config=get_native_backend_config())
    with pytest.raises(AssertionError, match="the model has been prepared before"):
        prepare_fx(prepared, mapping, ())
    with pytest.raises(AssertionError, match=r"each QConfig must be that of prepare_fx, or None, but _0 has QConfig\("):
        convert_fx(prepared, qconfig_mapping=QConfigMapping().set_global(default_dynamic_qconfig))
    with pytest.raises(NotImplementedError, match="the original ones are in the prepared model, which stays as it is"):
        convert_fx(prepared, keep_original_weights=True)
    with pytest.raises(NotImplementedError, match="there are no reference modules"):
        convert_to_reference_fx(prepared)
    prepared.graph.erase_node(prepared.graph.find_nodes(op="output")[0])
    prepared.graph.output(prepared.graph.call_function(weft.relu, (next(iter(prepared.graph.nodes)),)))
    with pytest.raises(AssertionError, match="the graph has changed since prepare"):
        convert_fx(prepared)


def test_inputs_that_are_numbers_are_not_observed():
    class Scaled(nn.Module):
        def forward(self, x, scale=2.0):
            return F.relu(x) * scale

    x = weft.randn(20)
    prepared = prepare_fx(Scaled().eval(), get_default_qconfig_mapping("qnnpack"), (x,))
    prepared(x)
    quantized = convert_fx(prepared)
    assert (quantized(x, 3.0) - 3 * F.relu(x)).abs().max() < 0.05


def test_a_converted_model_runs_uncaptured_where_it_is_compiled():
    _, x, prepared = prepared_net()
    quantized = convert_fx(prepared)
    with pytest.warns(UserWarning, match="needs a tensor with layout torch.quantized at .*; it runs uncaptured"):
        result = weft.compile(quantized)(x)
    assert weft.equal(result, quantized(x))


def test_float_functionals_of_the_model_stay():
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.join = weft.ao.nn.quantized.FloatFunctional()

        def forward(self, x):
            return self.join.add_relu(x, x)

    model, x = nn.Sequential(Sum()).eval(), weft.randn(20)
    prepared = prepare_fx(model, get_default_qconfig_mapping("qnnpack"), (x,))
    assert type(model[0].join) is weft.ao.nn.quantized.FloatFunctional
    assert [node.name for node in fuse_fx(model).graph.nodes][-3:] == ["add", "relu", "output"]
    prepared(x)
    assert (convert_fx(prepared)(x) - model(x)).abs().max() < 0.05


def test_activations_have_one_grid():
    swapped = QConfig(activation=PerChannelMinMaxObserver, weight=PerChannelMinMaxObserver.with_args(dtype=weft.qint8))
    match = r"the QConfig of _0 has a grid for each channel of activations, by PerChannelMinMaxObserver, but only weig"
    with pytest.raises(NotImplementedError, match=match):
        prepare_fx(nn.Sequential(nn.Linear(2, 2)).eval(), QConfigMapping().set_global(swapped), ())


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 6, 2, groups=2), nn.Conv2d(4, 6, 2), nn.Conv2d(4, 4, 1, groups=4)])
def test_a_batch_may_be_empty(layer):
    x = weft.randn(2, 4, *(3,) * (layer.weight.ndim - 2))
    prepared = prepare_fx(nn.Sequential(layer, nn.ReLU()).eval(), get_default_qconfig_mapping(), (x,))
    prepared(x)
    assert convert_fx(prepared)(x[:0]).shape == layer(x[:0]).shape


@pytest.mark.parametrize("is_qat", [False, True])
def test_an_input_that_is_none_is_named(is_qat):
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x, mask=None):
            return self.linear(x) * mask

    x = weft.randn(3, 2)
    if is_qat:
        prepared = prepare_qat_fx(Masked().train(), get_default_qat_qconfig_mapping(), (x, x))
    else:
        prepared = prepare_fx(Masked().eval(), get_default_qconfig_mapping(), (x, x))
    with pytest.raises(
        AttributeError, match=r"observes tensors, but the input 'mask' is of type NoneType: pass a tens"
    ):
        prepared(x)
    prepared(x, x)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_tables_of_bags_have_all_modes(mode):
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(10, 4, mode=mode)

        def forward(self, numbers, offsets):
            return self.bag(numbers, offsets)

    model, inputs = Bags().eval(), (weft.arange(10), weft.tensor([0, 3, 7]))
    mapping = QConfigMapping().set_global(float_qparams_weight_only_qconfig)
    quantized = convert_fx(prepare_fx(copy.deepcopy(model), mapping, inputs))
    assert type(quantized.bag) is weft.ao.nn.quantized.EmbeddingBag
    assert (quantized(*inputs) - model(*inputs)).abs().max() < 0.05


@pytest.mark.parametrize("is_qat", [False, True])
def test_a_layer_that_is_called_twice_before_a_relu(is_qat):
    layer, x = nn.Linear(4, 4), weft.randn(16, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    if is_qat:
        prepared = prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping(), (x,))
    else:
        prepared = prepare_fx(copy.deepcopy(model).eval(), get_default_qconfig_mapping(), (x,))
    prepared(x)
    assert (convert_fx(prepared.eval())(x) - model(x)).norm() < 0.05 * model(x).norm()


@pytest.mark.parametrize("is_qat", [False, True])
def test_parts_can_be_left_on_floats_after_calibration(is_qat):
    x = weft.randn(16, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4))
    mapping = get_default_qat_qconfig_mapping() if is_qat else get_default_qconfig_mapping()
    prepared = prepare_qat_fx(model.train(), mapping, (x,)) if is_qat else prepare_fx(model.eval(), mapping, (x,))
    prepared(x)
    prepared.eval()
    partly = convert_fx(prepared, qconfig_mapping=copy.deepcopy(mapping).set_module_name("2", None))
    names = [node.name for node in partly.graph.nodes if node.op != "get_attr"]
    assert names == ["input_1", "quantize_per_tensor", "_0", "dequantize", "_2", "quantize_per_tensor_1", "_3",
                     "dequantize_1", "output"]  # fmt: skip
    assert "3_input_scale_0" in partly.state_dict()
    assert type(partly.get_submodule("2")) is nn.Linear
    none = convert_fx(prepared, qconfig_mapping=copy.deepcopy(mapping).set_module_name("", None))
    assert [node.name for node in none.graph.nodes] == ["input_1", "_0", "_2", "_3", "output"]
    assert weft.allclose(none(x), model(x), atol=1e-6)
    assert [node.name for node in convert_fx(prepared).graph.nodes].count("dequantize") == 1


@pytest.mark.parametrize(
    ("mapping", "count"),
    [
        (QConfigMapping().set_object_type(nn.intrinsic.LinearReLU, default_qconfig), 2),
        (QConfigMapping().set_global(default_qconfig).set_object_type(nn.intrinsic.LinearReLU, None), 2),
        (QConfigMapping().set_object_type(nn.Linear, default_qconfig), 3),
    ],
)
def test_fused_layers_go_by_their_own_type_or_by_the_first_one(mapping, count):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    prepared = prepare_fx(model, mapping, ())
    assert sum("activation_post_process" in node.name for node in prepared.graph.nodes) == count
