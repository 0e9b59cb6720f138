"""Which class a module becomes: quantized, dynamically quantized, or for quantization-aware training."""

from __future__ import annotations

from typing import Any, TypeAlias

import weft.ao.nn.intrinsic.modules.fused as nni
import weft.ao.nn.intrinsic.qat.modules.conv_fused as conv_qat
import weft.ao.nn.intrinsic.quantized.modules.bn_relu as bn_relu
import weft.ao.nn.intrinsic.quantized.modules.conv_relu as conv_relu
import weft.ao.nn.intrinsic.quantized.modules.linear_relu as linear_relu
from weft import nn
from weft._base.types import Arg
from weft.ao._observing.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from weft.ao._observing.utils import get_combined_dict
from weft.ao.nn import quantizable
from weft.ao.nn.intrinsic.qat.modules.linear_fused import LinearBn1d as QatLinearBn1d
from weft.ao.nn.intrinsic.qat.modules.linear_relu import LinearReLU as QatLinearReLU
from weft.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu import LinearReLU as DynamicLinearReLU
from weft.ao.nn.qat.dynamic.modules.linear import Linear as DynamicQatLinear
from weft.ao.nn.qat.modules import conv as qat_conv
from weft.ao.nn.qat.modules import embedding_ops as qat_embedding
from weft.ao.nn.qat.modules.linear import Linear as QatLinear
from weft.ao.nn.quantized.dynamic.modules import linear as dynamic_linear
from weft.ao.nn.quantized.dynamic.modules import rnn as dynamic_rnn
from weft.ao.nn.quantized.modules import (
    activation,
    batchnorm,
    conv,
    dropout,
    embedding_ops,
    functional_modules,
    linear,
    normalization,
    stubs,
)
from weft.ao.quantization.stubs import DeQuantStub, QuantStub
from weft.errors import PreconditionError

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: stubs.Quantize,
    DeQuantStub: stubs.DeQuantize,
    nn.BatchNorm2d: batchnorm.BatchNorm2d,
    nn.BatchNorm3d: batchnorm.BatchNorm3d,
    nn.Dropout: dropout.Dropout,
    nn.Conv1d: conv.Conv1d,
    nn.Conv2d: conv.Conv2d,
    nn.Conv3d: conv.Conv3d,
    nn.ConvTranspose1d: conv.ConvTranspose1d,
    nn.ConvTranspose2d: conv.ConvTranspose2d,
    nn.ConvTranspose3d: conv.ConvTranspose3d,
    nn.ELU: activation.ELU,
    nn.Embedding: embedding_ops.Embedding,
    nn.EmbeddingBag: embedding_ops.EmbeddingBag,
    nn.GroupNorm: normalization.GroupNorm,
    nn.Hardswish: activation.Hardswish,
    nn.InstanceNorm1d: normalization.InstanceNorm1d,
    nn.InstanceNorm2d: normalization.InstanceNorm2d,
    nn.InstanceNorm3d: normalization.InstanceNorm3d,
    nn.LayerNorm: normalization.LayerNorm,
    nn.LeakyReLU: activation.LeakyReLU,
    nn.Linear: linear.Linear,
    nn.ReLU6: activation.ReLU6,
    nn.PReLU: activation.PReLU,
    functional_modules.FloatFunctional: functional_modules.QFunctional,
    nni.BNReLU2d: bn_relu.BNReLU2d,
    nni.BNReLU3d: bn_relu.BNReLU3d,
    nni.ConvReLU1d: conv_relu.ConvReLU1d,
    nni.ConvReLU2d: conv_relu.ConvReLU2d,
    nni.ConvReLU3d: conv_relu.ConvReLU3d,
    nni.LinearReLU: linear_relu.LinearReLU,
    nni.LinearLeakyReLU: linear_relu.LinearLeakyReLU,
    nni.LinearTanh: linear_relu.LinearTanh,
    conv_qat.ConvBn1d: conv.Conv1d,
    conv_qat.ConvBn2d: conv.Conv2d,
    conv_qat.ConvBn3d: conv.Conv3d,
    conv_qat.ConvBnReLU1d: conv_relu.ConvReLU1d,
    conv_qat.ConvBnReLU2d: conv_relu.ConvReLU2d,
    conv_qat.ConvBnReLU3d: conv_relu.ConvReLU3d,
    conv_qat.ConvReLU1d: conv_relu.ConvReLU1d,
    conv_qat.ConvReLU2d: conv_relu.ConvReLU2d,
    conv_qat.ConvReLU3d: conv_relu.ConvReLU3d,
    QatLinearReLU: linear_relu.LinearReLU,
    QatLinearBn1d: linear.Linear,
    QatLinear: linear.Linear,
    qat_conv.Conv1d: conv.Conv1d,
    qat_conv.Conv2d: conv.Conv2d,
    qat_conv.Conv3d: conv.Conv3d,
}
"""What `convert` makes of the modules of a prepared model."""

DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.Conv2d: qat_conv.Conv2d,
    nn.Conv3d: qat_conv.Conv3d,
    nn.Linear: QatLinear,
    nni.ConvBn1d: conv_qat.ConvBn1d,
    nni.ConvBn2d: conv_qat.ConvBn2d,
    nni.ConvBn3d: conv_qat.ConvBn3d,
    nni.ConvBnReLU1d: conv_qat.ConvBnReLU1d,
    nni.ConvBnReLU2d: conv_qat.ConvBnReLU2d,
    nni.ConvBnReLU3d: conv_qat.ConvBnReLU3d,
    nni.ConvReLU2d: conv_qat.ConvReLU2d,
    nni.ConvReLU3d: conv_qat.ConvReLU3d,
    nni.LinearReLU: QatLinearReLU,
    nni.LinearBn1d: QatLinearBn1d,
}
"""What `prepare_qat` makes of the modules of a float model."""

DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.GRUCell: dynamic_rnn.GRUCell,
    nn.Linear: dynamic_linear.Linear,
    DynamicQatLinear: dynamic_linear.Linear,
    nn.LSTM: dynamic_rnn.LSTM,
    nn.GRU: dynamic_rnn.GRU,
    nn.LSTMCell: dynamic_rnn.LSTMCell,
    nn.RNNCell: dynamic_rnn.RNNCell,
    nni.LinearReLU: DynamicLinearReLU,
    nn.EmbeddingBag: embedding_ops.EmbeddingBag,
    nn.Embedding: embedding_ops.Embedding,
}
"""What `quantize_dynamic` makes of the modules of a float model."""

DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Any, Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}
"""In training: what has results in a known range, and the fake quantization for it."""

_CONTAINERS = {nn.Sequential}


ClassMapping: TypeAlias = dict[Any, Any]
"""From classes or functions to those that take their place."""


def no_observer_set() -> set[type]:
    """Modules that get no observer, since their parts have them."""
    return {quantizable.LSTM, quantizable.MultiheadAttention}


def get_default_static_quant_module_mappings() -> ClassMapping:
    """A copy of `DEFAULT_STATIC_QUANT_MODULE_MAPPINGS`."""
    return dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> ClassMapping:
    """The same, with tables for quantization-aware training."""
    more = {
        qat_embedding.EmbeddingBag: embedding_ops.EmbeddingBag,
        qat_embedding.Embedding: embedding_ops.Embedding,
    }
    return get_combined_dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, more)


def get_default_qat_module_mappings() -> ClassMapping:
    """A copy of `DEFAULT_QAT_MODULE_MAPPINGS`."""
    return dict(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> ClassMapping:
    """The same, with tables."""
    more = {nn.EmbeddingBag: qat_embedding.EmbeddingBag, nn.Embedding: qat_embedding.Embedding}
    return get_combined_dict(DEFAULT_QAT_MODULE_MAPPINGS, more)


def get_default_dynamic_quant_module_mappings() -> ClassMapping:
    """A copy of `DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS`."""
    return dict(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def _class_for(float_module_class: object, mappings: dict[object, object], more: dict[object, object] | None) -> Arg:
    match = get_combined_dict(mappings, more or {}).get(float_module_class)
    if match is None:
        raise PreconditionError(
            f"Floating point module class {float_module_class} does not have a corresponding quantized module class"
        )
    return match


def get_static_quant_module_class(
    float_module_class: object,
    additional_static_quant_mapping: dict[object, object] | None = None,
    is_reference: bool = False,
) -> Any:
    """The quantized class for a float one; `AssertionError` if there is none."""
    if is_reference:
        raise PreconditionError("there are no reference modules; use is_reference=False")
    return _class_for(float_module_class, DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, additional_static_quant_mapping)


def get_dynamic_quant_module_class(
    float_module_class: object, additional_dynamic_quant_mapping: dict[object, object] | None = None
) -> Any:
    """The dynamically quantized class for a float one; `AssertionError` if there is none."""
    return _class_for(float_module_class, DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, additional_dynamic_quant_mapping)


_MAPPINGS = (
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    DEFAULT_QAT_MODULE_MAPPINGS,
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
)


def get_default_qconfig_propagation_list() -> set[type]:
    """Types of modules that `prepare` observes."""
    return _CONTAINERS.union(*_MAPPINGS)


def get_default_compare_output_module_list() -> set[type]:
    """Types of modules whose results the numeric suite records: all float and all quantized ones."""
    return get_default_qconfig_propagation_list().union(*(mapping.values() for mapping in _MAPPINGS))
