"""Steps of eager mode: what they refuse, what they keep, and modules that programs make themselves."""

from __future__ import annotations

import copy
import io
import re
from importlib import import_module

import numpy as np
import pytest

import weft
import weft.nn.quantized as former
from weft import nn
from weft.ao import quantization as tq
from weft.ao.nn import quantized as nnq
from weft.ao.nn.intrinsic import qat
from weft.errors import (
    CompileError,
    DTypeError,
    PreconditionError,
    ShapeError,
    UnsupportedCallError,
    UnsupportedError,
)

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


@pytest.fixture
def model():
    weft.manual_seed(0)
    return tq.QuantWrapper(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))).eval()


@pytest.fixture
def x():
    return weft.linspace(-1, 1, 20).reshape(5, 4)


def converted(model, x, qconfig=tq.default_qconfig):
    model.qconfig = qconfig
    prepared = tq.prepare(model)
    prepared(x)
    return tq.convert(prepared)


def test_originals_stay_as_they_are(model, x):
    before = repr(model)
    quantized = converted(model, x)
    assert repr(model) == before
    assert not any(hasattr(module, "qconfig") for module in quantized.modules())
    assert not any(module._forward_hooks for module in quantized.modules())
    np.testing.assert_allclose(quantized(x).numpy(), model(x).detach().numpy(), atol=0.03)


def test_all_steps_at_once(model, x):
    model.qconfig = tq.default_qconfig
    at_once = tq.quantize(model, tq.default_eval_fn, ([(x, 0)],))
    assert weft.equal(at_once(x), converted(model, x)(x))


def test_parts_without_a_qconfig_stay_floats(model, x):
    model.qconfig = tq.default_qconfig
    model.module[2].qconfig = None
    prepared = tq.prepare(model)
    prepared(x)
    kinds = [type(module).__name__ for module in tq.convert(prepared).module]
    assert kinds == ["Linear", "ReLU", "Linear"]
    assert isinstance(tq.convert(prepared).module[0], nnq.Linear)
    assert type(tq.convert(prepared).module[2]) is nn.Linear


def test_hooks_of_users_move_to_the_quantized_module(model, x):
    seen = []
    model.module[0].register_forward_hook(lambda module, inputs, output: seen.append(output.is_quantized))
    converted(model, x)(x)
    assert seen == [False, True]  # the calibration, and the quantized model


def test_a_quantized_model_is_loaded_from_a_file(model, x):
    quantized = converted(model, x, tq.default_per_channel_qconfig)
    file = io.BytesIO()
    weft.save(quantized.state_dict(), file)
    file.seek(0)
    fresh = converted(copy.deepcopy(model), x * 3)
    assert not weft.equal(fresh(x), quantized(x))
    fresh.load_state_dict(weft.load(file))
    assert weft.equal(fresh(x), quantized(x))


def test_a_state_dict_that_lacks_entries_changes_nothing(model, x):
    quantized = converted(model, x)
    state = quantized.state_dict()
    other = converted(model, x * 3)
    before = other(x)
    del state["module.2.scale"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"module.2.scale"'):
        other.load_state_dict(state)
    assert weft.equal(other(x), before)


def test_training_compiles(x):
    weft.manual_seed(0)
    layers = nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU())
    layers.qconfig = tq.get_default_qat_qconfig("fbgemm")
    prepared = tq.prepare_qat(tq.fuse_modules_qat(layers, ["0", "1", "2"]))
    assert type(prepared[0]) is qat.ConvBnReLU1d
    twin = copy.deepcopy(prepared)
    batch = weft.linspace(-1, 1, 48).reshape(2, 4, 6)
    losses = []
    for trained in (prepared, twin):
        optimizer = weft.optim.SGD(trained.parameters(), lr=0.1)

        def step(trained=trained, optimizer=optimizer):
            optimizer.zero_grad()
            loss = trained(batch).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step, fullgraph=True) if trained is twin else step
        run()  # the grids get their sizes
        losses.append([run().item() for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][2] < losses[0][0]
    assert isinstance(tq.convert(prepared.eval())[0], nnq.Conv1d)


def test_observation_and_rounding_can_be_switched_off(x):
    layer = tq.FusedMovingAvgObsFakeQuantize.with_args(observer=tq.MovingAverageMinMaxObserver)()
    layer(x)
    tq.disable_observer(layer)
    scale = layer.scale.item()
    assert not weft.equal(layer(x * 7), x * 7)
    tq.disable_fake_quant(layer)
    assert weft.equal(layer(x * 7), x * 7)
    assert layer.scale.item() == scale
    tq.enable_observer(layer)
    tq.enable_fake_quant(layer)
    layer(x * 7)
    assert layer.scale.item() > scale


def test_texts_show_observers_and_hide_weights(model, x):
    quantized = converted(model, x)
    layer = quantized.module[0]
    layer.activation_post_process = tq.NoopObserver()
    assert re.fullmatch(
        r"QuantizedLinear\(\n  in_features=4, .*\n  \(activation_post_process\): NoopObserver\(\)\n\)", repr(layer)
    )
    assert "\n" not in repr(quantized.module[2])


@pytest.mark.parametrize("dtype", [weft.qint8, weft.float16])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell"])
def test_a_dynamic_layer_that_is_made_directly_takes_weights(kind, dtype):
    make, more = getattr(nn, kind), {} if kind.endswith("Cell") else {"num_layers": 2, "bidirectional": True}
    quantized = tq.quantize_dynamic(nn.Sequential(make(4, 3, **more)), dtype=dtype)[0]
    layer, x = getattr(nnq.dynamic, kind)(4, 3, **more, dtype=dtype), weft.ones(5, 2, 4) if more else weft.ones(2, 4)
    assert not any(y.any() for y in weft.utils._pytree.tree_leaves(layer(x)))
    assert {name: w.dtype for name, w in layer.get_weight().items()} == {
        name: w.dtype for name, w in quantized.get_weight().items()
    }
    layer.load_state_dict(quantized.state_dict())
    weft.testing.assert_close(layer(x), quantized(x))


def test_max_pooling_of_quantized_tensors_is_that_of_floats():
    assert nnq.MaxPool2d is nn.MaxPool2d


def test_former_paths_have_the_same_objects():
    assert former.Linear is nnq.Linear
    assert former.functional.linear is nnq.functional.linear
    assert weft.quantization.prepare is tq.prepare
    assert weft.nn.intrinsic.ConvReLU2d is weft.ao.nn.intrinsic.ConvReLU2d
    assert weft.nn.qat.Linear is weft.ao.nn.qat.Linear


@pytest.mark.parametrize(
    "name",
    [
        "intrinsic.modules.fused.ConvReLU2d",
        "intrinsic.qat.modules.conv_fused.ConvBn2d",
        "intrinsic.qat.modules.linear_fused.LinearBn1d",
        "intrinsic.qat.modules.linear_relu.LinearReLU",
        "intrinsic.quantized.dynamic.modules.linear_relu.LinearReLU",
        "intrinsic.quantized.modules.bn_relu.BNReLU2d",
        "intrinsic.quantized.modules.conv_relu.ConvReLU2d",
        "intrinsic.quantized.modules.linear_relu.LinearReLU",
        "qat.dynamic.modules.linear.Linear",
        "qat.modules.conv.Conv2d",
        "qat.modules.embedding_ops.EmbeddingBag",
        "qat.modules.linear.Linear",
        "quantizable.modules.rnn.LSTM",
        "quantized.modules.rnn.LSTM",
    ],
)
def test_former_paths_of_files_have_the_same_objects(name):
    module, _, kind = name.rpartition(".")
    here, there = (getattr(import_module(f"{root}.{module}"), kind) for root in ("weft.nn", "weft.ao.nn"))
    assert here is there


# --- observers ----------------------------------------------------------------------------------------------------


def test_a_grid_covers_what_was_seen():
    observer = tq.MinMaxObserver()
    with pytest.warns(UserWarning, match="must run observer before calling calculate_qparams"):
        assert [x.item() for x in observer.calculate_qparams()] == [1, 0]
    observer(weft.tensor([-1.0, 2.0]))
    observer(weft.tensor([0.5]))
    scale, zero = observer.calculate_qparams()
    assert scale.item() == pytest.approx(3 / 255)
    assert zero.item() == 85
    observer.reset_min_max_vals()
    assert observer.min_val.item() == float("inf")


def test_averages_move():
    observer = tq.MovingAverageMinMaxObserver(averaging_constant=0.5)
    observer(weft.tensor([-1.0, 2.0]))
    observer(weft.tensor([-3.0, 4.0]))
    assert (observer.min_val.item(), observer.max_val.item()) == (-2, 3)


def test_channels_have_ranges_of_their_own():
    observer = tq.PerChannelMinMaxObserver(ch_axis=1, qscheme=weft.per_channel_symmetric, dtype=weft.qint8)
    observer(weft.tensor([[1.0, -2], [0, 4]]))
    scale, zero = observer.calculate_qparams()
    np.testing.assert_allclose(scale.numpy(), [1 / 127.5, 4 / 127.5], rtol=1e-6)
    assert zero.tolist() == [0, 0]
    fresh = tq.PerChannelMinMaxObserver(ch_axis=1)
    fresh.load_state_dict(observer.state_dict())
    assert fresh.max_val.tolist() == [1, 4]


def test_a_histogram_grows_with_the_range():
    observer = tq.HistogramObserver(bins=64)
    observer(weft.linspace(-1, 1, 1000))
    observer(weft.linspace(-1, 3, 1000))
    assert (observer.min_val.item(), observer.max_val.item()) == (-1, 3)
    assert observer.histogram.sum().item() == 2000
    low, high = observer.histogram[:32].sum().item(), observer.histogram[32:].sum().item()
    assert low == pytest.approx(1500, abs=20)
    assert low + high == 2000
    scale, zero = observer.calculate_qparams()
    assert scale.item() == pytest.approx(4 / 255, rel=0.05)
    assert zero.item() == pytest.approx(64, abs=4)
    with pytest.warns(UserWarning, match="inf detected"):
        observer(weft.tensor([weft.inf]))


def test_a_recorder_keeps_what_it_saw(x):
    observer = tq.RecordingObserver()
    assert observer(x) is x
    assert [weft.equal(seen, x) for seen in observer.get_tensor_value()] == [True]
    with pytest.raises(NotImplementedError, match="calculate_qparams should not be called for RecordingObserver"):
        observer.calculate_qparams()


def test_arguments_are_added_to_constructors():
    narrow = tq.default_observer.with_args(quant_max=63)
    assert (narrow().quant_min, narrow().quant_max) == (0, 63)
    assert "quant_max=63" in repr(narrow)
    assert tq.qconfig_equals(
        tq.default_qconfig,
        tq.QConfig(tq.MinMaxObserver.with_args(quant_min=0, quant_max=127), tq.default_weight_observer),
    )
    assert not tq.qconfig_equals(tq.default_qconfig, tq.default_per_channel_qconfig)


def test_a_mapping_is_a_dict_and_back():
    mapping = tq.get_default_qconfig_mapping().set_module_name("head", None)
    again = tq.QConfigMapping.from_dict(mapping.to_dict())
    assert again.to_dict() == mapping.to_dict()
    assert again.module_name_qconfigs["head"] is None
    assert dict(again.to_dict()["object_type"])[nn.LayerNorm].weight is tq.PlaceholderObserver


@pytest.mark.parametrize("name", ["get_default_qconfig", "get_default_qat_qconfig"])
def test_former_functions_return_mappings_as_dicts(name):
    with pytest.warns(FutureWarning, match=f"`{name}_dict` is deprecated. Please use `{name}_mapping` instead"):
        entries = getattr(tq, f"{name}_dict")("fbgemm")
    assert str(entries) == str(getattr(tq, f"{name}_mapping")("fbgemm").to_dict())
    assert getattr(weft.ao.quantization.qconfig, f"{name}_dict") is getattr(tq, f"{name}_dict")


# --- mistakes -----------------------------------------------------------------------------------------------------

MISTAKES = {
    "float input": (
        lambda: nnq.Linear(2, 2)(weft.ones(1, 2)),
        UnsupportedCallError,
        r"quantized linear: expected a quantized input, such as a QuantStub makes after convert\(\)",
    ),
    "not prepared": (
        lambda: nnq.Linear.from_float(nn.Linear(2, 2)),
        PreconditionError,
        r"must have an observer attached: call prepare\(\)",
    ),
    "dynamic training": (
        lambda: weft.ao.nn.qat.dynamic.Linear(2, 2, qconfig=tq.default_qat_qconfig),
        ValueError,
        "Dynamic QAT requires a memoryless observer",
    ),
    "evaluation": (lambda: tq.prepare_qat(nn.Linear(2, 2).eval()), PreconditionError, r"call model\.train\(\) first"),
    "fusion": (
        lambda: tq.fuse_modules(nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()), ["0", "1"]),
        PreconditionError,
        "did not find fuser method for: Linear, Sigmoid",
    ),
    "modes": (
        lambda: tq.fuse_modules_qat(nn.Sequential(nn.Conv1d(1, 1, 1).eval(), nn.BatchNorm1d(1)), ["0", "1"]),
        PreconditionError,
        "Conv1d and BatchNorm1d both must be in the same mode",
    ),
    "backend": (lambda: tq.get_default_qconfig("cuda"), PreconditionError, "backend: cuda not supported"),
    "instance": (
        lambda: tq.QConfig(tq.MinMaxObserver(), tq.MinMaxObserver),
        ValueError,
        "received observer instance, please pass observer class instead",
    ),
    "scheme": (
        lambda: tq.MinMaxObserver(qscheme=weft.per_channel_affine),
        UnsupportedError,
        "MinMaxObserver's qscheme only support torch.per_tensor_symmetric",
    ),
    "levels": (lambda: tq.MinMaxObserver(quant_min=3, quant_max=9), PreconditionError, "must include 0, got 3 to 9"),
    "type": (
        lambda: tq.quantize_dynamic(nn.Linear(2, 2), dtype=weft.int32),
        ValueError,
        r"Don't know how to quantize with default settings for torch\.int32",
    ),
    "type of types": (
        lambda: tq.quantize_dynamic(nn.Linear(2, 2), {nn.Linear}, weft.qint32),
        DTypeError,
        r"Unknown dtype specified for quantize_dynamic: torch\.qint32; it must be one of torch\.qint8, torch\.float16",
    ),
    "unsigned weights": (
        lambda: tq.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear}, weft.quint8),
        PreconditionError,
        r"only supported dtypes for dynamic quantized linear are qint8 and float16, got: torch\.quint8",
    ),
    "no batch": (lambda: nnq.Conv2d(1, 1, 1)(_q(1, 2, 2)), ValueError, r"must be `\(N, C, H, W\)`! .*unsqueeze\(0\)"),
    "no batch transposed": (lambda: nnq.ConvTranspose1d(1, 1, 1)(_q(1, 2)), ValueError, r"must be `\(N, C, L\)`!"),
    "no batch for functions": (
        lambda: nnq.functional.conv3d(_q(1, 2, 2, 2), nnq.Conv3d(1, 1, 1).weight(), None),
        ValueError,
        r"must be `\(N, C, D, H, W\)`!",
    ),
    "kernel": (
        lambda: nnq.Conv1d(1, 1, 3)(_q(1, 1, 2)),
        ShapeError,
        r"Kernel size: \(3\). Kernel size can't be greater",
    ),
    "padding": (
        lambda: nnq.Conv1d(1, 1, 1, padding_mode="circular"),
        ValueError,
        "padding_mode 'zeros' or 'reflect', not 'circular'",
    ),
    "stride": (lambda: nnq.Conv1d(1, 1, 1, stride=0)(_q(1, 1, 2)), ShapeError, "non-positive stride"),
    "quantized for dynamic": (
        lambda: tq.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))(_q(1, 2)),
        NotImplementedError,
        r"layers of dynamic quantization take floats, .*: pass x\.dequantize\(\)",
    ),
    "half for dynamic": (
        lambda: tq.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))(weft.ones(1, 2).half()),
        DTypeError,
        r"expected scalar type Float but found Half: .* pass x\.float\(\)",
    ),
    "sum": (
        lambda: _q(2) + _q(2),
        UnsupportedCallError,
        r"use x\.dequantize\(\), or nn\.quantized\.FloatFunctional\(\)\.add",
    ),
    "float layer": (
        lambda: nn.BatchNorm1d(2).eval()(_q(1, 2)),
        UnsupportedCallError,
        r"do not have batch_norm\(\); use x\.dequantize\(\), or a layer that prepare\(\)",
    ),
    "empty like": (lambda: weft.empty_like(_q(2)), UnsupportedCallError, r"do not have zeros_like\(\), empty_like\(\)"),
    "projection": (
        lambda: tq.quantize_dynamic(nn.Sequential(nn.LSTM(4, 4, proj_size=2)), {nn.LSTM}),
        UnsupportedError,
        "an LSTM with proj_size is not supported",
    ),
    "forward": (lambda: nnq.FloatFunctional()(weft.ones(1)), RuntimeError, "not intended to use the 'forward'"),
    "transposed": (
        lambda: tq.prepare(_with(nn.ConvTranspose1d(1, 1, 1), tq.get_default_qconfig("fbgemm"))),
        PreconditionError,
        "Per channel weight observer is not supported yet for ConvTranspose",
    ),
    "reference": (lambda: tq.convert(nn.Linear(1, 1), is_reference=True), UnsupportedError, "no reference modules"),
}


def _q(*size):
    return weft.quantize_per_tensor(weft.ones(*size), 0.1, 0, weft.quint8)


def _with(module, qconfig):
    module.qconfig = qconfig
    return module


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text):
        call()


def test_a_model_without_a_qconfig_is_reported():
    with pytest.warns(UserWarning, match="None of the submodule got qconfig applied"):
        tq.prepare(nn.Linear(1, 1))


def test_sums_and_products_with_numbers_move_the_grid():
    functional, x = nnq.QFunctional(), weft.quantize_per_tensor(weft.tensor([-1.0, 0.5, 2]), 0.05, 60, weft.quint8)
    for name, number, expected in (
        ("add_scalar", 0.7, [-0.3, 1.2, 2.7]),
        ("add_scalar", 100.0, [99, 100.5, 102]),
        ("mul_scalar", 2.0, [-2, 1, 4]),
        ("mul_scalar", -0.5, [0.5, -0.25, -1]),
        ("mul_scalar", 0.0, [0, 0, 0]),
    ):
        y = getattr(functional, name)(x, number)
        np.testing.assert_allclose(y.dequantize().numpy(), expected, atol=max(y.q_scale(), 1e-6))


@pytest.mark.parametrize("export", [lambda model, x: weft.export.export(model, (x,)), weft.jit.trace])
def test_a_quantized_model_that_is_exported_says_what_to_do(model, x, export):
    text = (
        r"^QuantWrapper: it needs a tensor with layout torch\.quantized at .*, and there is none while a function is "
        r"exported; such tensors are no part of exported or traced programs: export or trace the float model, before "
        r"it is quantized, or use x\.dequantize\(\) first$"
    )
    with pytest.raises(CompileError, match=text):
        export(converted(model, x), x)


def test_a_whole_quantized_model_is_saved(model, x):
    quantized = converted(model, x, tq.default_per_channel_qconfig)
    file = io.BytesIO()
    weft.save(quantized, file)
    file.seek(0)
    again = weft.load(file, weights_only=False)
    assert repr(again) == repr(quantized)
    assert weft.equal(again(x), quantized(x))
