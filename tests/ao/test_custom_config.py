"""Graph-mode quantization: what users say about their models in a `PrepareCustomConfig` and `ConvertCustomConfig`."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn
from weft.ao.quantization import (
    QConfigMapping,
    QuantType,
    default_dynamic_qconfig,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from weft.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from weft.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx
from weft.fx.proxy import TraceError

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


class Branch(nn.Module):
    """A program that cannot be traced."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


class Holder(nn.Module):
    """A model with such a part."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.branch, self.after = nn.Linear(4, 4), Branch(), nn.Linear(4, 4)
        self.note = "kept"

    def forward(self, x):
        return self.after(self.branch(self.before(x)))


@pytest.mark.parametrize(
    "config",
    [
        PrepareCustomConfig().set_non_traceable_module_names(["branch"]),
        PrepareCustomConfig().set_non_traceable_module_classes([Branch]),
        {"non_traceable_module_class": [Branch]},
    ],
    ids=["name", "class", "dict"],
)
def test_parts_that_cannot_be_traced_stay_on_floats(config):
    x = weft.randn(16, 4)
    model = Holder().eval()
    with pytest.raises(TraceError, match="is not known while a program is traced"):
        prepare_fx(model, get_default_qconfig_mapping(), (x,))
    prepared = prepare_fx(model, get_default_qconfig_mapping(), (x,), config)
    prepared(x)
    quantized = convert_fx(prepared)
    assert quantized.branch is model.branch
    assert (quantized(x) - model(x)).norm() < 0.05 * model(x).norm()


def test_attributes_are_preserved():
    config = PrepareCustomConfig().set_preserved_attributes(["note"])
    config.set_non_traceable_module_names(["branch"])
    prepared = prepare_fx(Holder().eval(), get_default_qconfig_mapping(), (), config)
    prepared(weft.randn(4, 4))
    assert (prepared.note, convert_fx(prepared).note) == ("kept", "kept")
    with pytest.raises(AttributeError, match="preserved_attributes: Holder has no attribute 'notes'"):
        prepare_fx(
            Holder(), QConfigMapping(), (), {"preserved_attributes": ["notes"], "non_traceable_module_name": ["branch"]}
        )


def test_inputs_and_results_can_be_quantized_tensors():
    x = weft.randn(4, 4)
    config = PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    prepared = prepare_fx(nn.Sequential(nn.Linear(4, 4)).eval(), get_default_qconfig_mapping(), (x,), config)
    assert len([name for name, _ in prepared.named_modules() if name.startswith("activation_post_process")]) == 1
    prepared(x)
    y = convert_fx(prepared)(weft.quantize_per_tensor(x, 0.05, 60, weft.quint8))
    assert y.is_quantized
    assert y.q_scale() == pytest.approx(prepared.activation_post_process_0.calculate_qparams()[0].item())


class Custom(nn.Module):
    """A user's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x)


class ObservedCustom(Custom):
    """The observed form."""

    @classmethod
    def from_float(cls, module):
        result = cls()
        result.linear = module.linear
        return result


class QuantizedCustom(nn.Module):
    """The quantized form."""

    @classmethod
    def from_observed(cls, module):
        result = cls()
        module.linear.qconfig = module.qconfig
        module.linear.activation_post_process = module.activation_post_process
        result.linear = weft.ao.nn.quantized.Linear.from_float(module.linear)
        return result

    def forward(self, x):
        return self.linear(x)


def test_users_modules_become_their_own_quantized_forms():
    x = weft.randn(16, 3)
    model = nn.Sequential(Custom(), nn.ReLU()).eval()
    observed = PrepareCustomConfig().set_float_to_observed_mapping(Custom, ObservedCustom, QuantType.STATIC)
    prepared = prepare_fx(model, get_default_qconfig_mapping(), (x,), observed)
    assert type(prepared.get_submodule("0")) is ObservedCustom
    prepared(x)
    quantized = ConvertCustomConfig().set_observed_to_quantized_mapping(ObservedCustom, QuantizedCustom)
    converted = convert_fx(prepared, quantized)
    assert type(converted.get_submodule("0")) is QuantizedCustom
    assert (converted(x) - model(x)).abs().max() < 0.1
    assert PrepareCustomConfig.from_dict(observed.to_dict()).to_dict() == observed.to_dict()
    assert ConvertCustomConfig.from_dict(quantized.to_dict()).to_dict() == quantized.to_dict()


class DynamicCustom(QuantizedCustom):
    """The quantized form whose inputs are put on the grid of their own range."""

    @classmethod
    def from_observed(cls, module):
        result = cls()
        module.linear.qconfig = module.qconfig
        result.linear = weft.ao.nn.quantized.dynamic.Linear.from_float(module.linear)
        return result


@pytest.mark.parametrize("is_known", [True, False])
def test_users_modules_can_be_quantized_dynamically(is_known):
    x = weft.randn(16, 3)
    model = nn.Sequential(nn.Linear(3, 3), Custom()).eval()
    prepare, convert = PrepareCustomConfig(), ConvertCustomConfig()
    if is_known:
        prepare.set_float_to_observed_mapping(Custom, ObservedCustom, QuantType.DYNAMIC)
    else:
        prepare.set_non_traceable_module_classes([Custom])
    prepared = prepare_fx(model, QConfigMapping().set_global(default_dynamic_qconfig), (x,), prepare)
    assert [node.name for node in prepared.graph.nodes] == [
        "input_1",
        "activation_post_process_0",
        "_0",
        "_1",
        "output",
    ]
    convert.set_observed_to_quantized_mapping(ObservedCustom if is_known else Custom, DynamicCustom, QuantType.DYNAMIC)
    converted = convert_fx(prepared, convert)
    assert type(converted.get_submodule("1")) is DynamicCustom
    assert (converted(x) - model(x)).abs().max() < 0.1


class Outer(nn.Module):
    """A layer before a part that is prepared by itself, and one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.part, self.after = nn.Linear(3, 3), Custom(), nn.Linear(3, 3)

    def forward(self, x):
        return self.after(self.part(self.before(x)))


@pytest.mark.parametrize("is_qat", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [([], []), ([0], []), ([], [0]), ([0], [0])])
def test_standalone_modules_are_prepared_by_themselves(inputs, outputs, is_qat):
    x = weft.randn(16, 3)
    interface = PrepareCustomConfig().set_input_quantized_indexes(inputs).set_output_quantized_indexes(outputs)
    config = PrepareCustomConfig().set_standalone_module_name("part", None, (x,), interface, None)
    model = Outer()
    if is_qat:
        prepared = prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping(), (x,), config)
    else:
        prepared = prepare_fx(copy.deepcopy(model).eval(), get_default_qconfig_mapping(), (x,), config)

    def calls_of(graph_module, name):
        return sum(name in node.name for node in graph_module.graph.nodes)

    assert calls_of(prepared, "activation_post_process") == (3 if outputs else 4)
    assert calls_of(prepared.part, "activation_post_process") == (1 if inputs else 2)
    prepared(x)
    converted = convert_fx(prepared.eval())
    assert calls_of(converted, "quantize_per_tensor") == (1 if outputs else 2)
    assert calls_of(converted.part, "quantize_per_tensor") == (0 if inputs else 1)
    assert type(converted.part.linear) is weft.ao.nn.quantized.Linear
    assert (converted(x) - model(x)).abs().max() < 0.1


def test_standalone_modules_can_be_named_by_their_type_and_in_dicts():
    x = weft.randn(16, 3)
    config = PrepareCustomConfig().set_standalone_module_class(
        Custom, QConfigMapping().set_global(default_dynamic_qconfig), (x,), None, None
    )
    (entry,) = config.to_dict()["standalone_module_class"]
    assert entry[1][""] is default_dynamic_qconfig
    again = PrepareCustomConfig.from_dict(config.to_dict())
    assert again.to_dict() == config.to_dict()
    prepared = prepare_fx(Outer().eval(), get_default_qconfig_mapping(), (x,), again)
    prepared(x)
    assert type(convert_fx(prepared).part.linear) is weft.ao.nn.quantized.dynamic.Linear


def test_configurations_show_what_is_set():
    assert (repr(PrepareCustomConfig()), PrepareCustomConfig().to_dict()) == ("PrepareCustomConfig({})", {})
    assert repr(ConvertCustomConfig().set_preserved_attributes(["a"])) == (
        "ConvertCustomConfig({'preserved_attributes': ['a']})"
    )


def test_results_in_dicts_can_stay_quantized_tensors():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            y = self.linear(x)
            return {"y": [y], "z": y.exp()}

    x = weft.randn(4, 3)
    prepared = prepare_fx(Named().eval(), get_default_qconfig_mapping(), (x,), {"output_quantized_idxs": [0]})
    prepared(x)
    result = convert_fx(prepared)(x)
    assert result["y"][0].is_quantized
    assert not result["z"].is_quantized  # nothing has observed it
