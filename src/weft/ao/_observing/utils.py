"""Questions about observers, grids and `QConfig`s."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from weft._base.dtype import DType, float16, from_numpy, int8, int16, int32, qint8, qint32, quint8, uint8, uint16
from weft._base.layout import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qscheme,
)
from weft._base.types import Arg, AttributeValue, Kwargs
from weft._tensor.tensor import Tensor
from weft.ao._observing.quant_type import QuantType
from weft.errors import PreconditionError
from weft.nn._lookup import AnyModule
from weft.nn._module import Module
from weft.nn._tables import children_of

_K = TypeVar("_K")
_V = TypeVar("_V")

_EIGHT_BITS = (qint8, quint8, int8, uint8)


AnyQConfig: TypeAlias = Any
"""A `QConfig`, or what a user puts in its place: an object with `activation` and `weight`."""


def is_per_tensor(qscheme: qscheme) -> bool:
    """Whether a scheme has one grid for all elements."""
    return qscheme in (per_tensor_affine, per_tensor_symmetric)


def is_per_channel(qscheme: qscheme) -> bool:
    """Whether a scheme has a grid for each index of a dim."""
    return qscheme in (per_channel_affine, per_channel_affine_float_qparams, per_channel_symmetric)


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """`AssertionError` unless the levels from `quant_min` to `quant_max` contain 0 and another one."""
    if not quant_min <= 0 <= quant_max:
        raise PreconditionError(f"Used-specified quantization range must include 0, got {quant_min} to {quant_max}.")
    if quant_min >= quant_max:
        raise PreconditionError(
            f"qmin must be strictly less than qmax for user-specified quantization range, got {quant_min} to "
            f"{quant_max}."
        )


def calculate_qmin_qmax(
    quant_min: Arg, quant_max: Arg, has_customized_qrange: bool, dtype: DType, reduce_range: bool
) -> tuple[int, int]:
    """The levels of an observer: those given, else all of the type; half of them if `reduce_range`."""
    if has_customized_qrange:
        length, most = quant_max - quant_min + 1, 2**32 if dtype in (qint32, int32) else 256
        if dtype in (qint8, int8, qint32, int32) and not 0 < length <= most:
            raise PreconditionError(
                f"quantization range should be positive and not exceed the maximum bit range (={most}), got "
                f"{quant_min} to {quant_max} for {dtype}."
            )
        return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)
    # One bit less, as in PyTorch, for processors whose instructions add two 8-bit products in 16 bits and would
    # overflow.
    bits = dtype.itemsize * 8 - (reduce_range and dtype in _EIGHT_BITS)
    if dtype in (quint8, uint8, uint16):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether an observer has seen something; warns if not. `AssertionError` where a minimum exceeds its maximum."""
    if not min_val.numel() or not max_val.numel():
        unseen = True
    elif not min_val.ndim:
        unseen = min_val.item() == float("inf") and max_val.item() == float("-inf")
        if not unseen and min_val.item() > max_val.item():
            raise PreconditionError(f"min {min_val} should be less than max {max_val}")
    else:
        unseen = False
        if not bool((min_val <= max_val).all()):
            raise PreconditionError(f"min {min_val} should be less than max {max_val}")
    if unseen:
        warnings.warn(
            "must run observer before calling calculate_qparams. Returning default values.", UserWarning, stacklevel=3
        )
    return not unseen


def to_underlying_dtype(qdtype: DType) -> DType:
    """The type of the integers of a quantized type; that of other types of integers is itself."""
    return from_numpy(qdtype.numpy)


def get_combined_dict(default_dict: Mapping[_K, _V], additional_dict: Mapping[_K, _V]) -> dict[_K, _V]:
    """A new dict in which entries of the second replace those of the first."""
    return {**default_dict, **additional_dict}


def getattr_from_fqn(obj: object, fqn: str) -> AttributeValue:
    """The attribute that a path such as `layer.0.weight` names."""
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def get_qparam_dict(observer_or_fake_quant: AnyModule) -> Kwargs:
    """What an observer has facts: scheme, type, scale, zero point, and, if it has them, axis and levels."""
    facts = {name: getattr(observer_or_fake_quant, name, None) for name in ("qscheme", "dtype")}
    if facts["qscheme"] is None:
        raise PreconditionError(f"{type(observer_or_fake_quant).__name__} has no qscheme")
    facts["scale"], facts["zero_point"] = None, None
    if is_per_channel(facts["qscheme"]):
        facts["axis"] = observer_or_fake_quant.ch_axis
    elif not is_per_tensor(facts["qscheme"]):
        raise PreconditionError(f"unrecognized qscheme: {facts['qscheme']}")
    if not getattr(observer_or_fake_quant, "is_dynamic", False):
        facts["scale"], facts["zero_point"] = observer_or_fake_quant.calculate_qparams()
    for name in ("quant_min", "quant_max"):
        if hasattr(observer_or_fake_quant, name):
            facts[name] = getattr(observer_or_fake_quant, name)
    return facts


def get_swapped_custom_module_class(
    custom_module: Module, mapping: Mapping[QuantType, Mapping[type, type]], qconfig: AnyQConfig
) -> type:
    """The class that replaces a user's module, by the kind of quantization that `qconfig` asks for."""
    classes = mapping.get(get_quant_type(qconfig), {})
    if type(custom_module) not in classes:
        raise PreconditionError(
            f"did not find corresponding observed module class for {type(custom_module)} in mapping: {mapping}"
        )
    return classes[type(custom_module)]


def has_no_children_ignoring_parametrizations(module: Module) -> bool:
    """Whether a module has no submodules, or only the one that keeps its parametrizations."""
    return children_of(module).keys() <= {"parametrizations"}


# --- of a QConfig -----------------------------------------------------------------------------------------------


def activation_dtype(qconfig: AnyQConfig) -> DType:
    """The type of activations."""
    return qconfig.activation().dtype


def weight_dtype(qconfig: AnyQConfig) -> DType:
    """The type of weights."""
    return qconfig.weight().dtype


def _activation_is_dynamic(qconfig: AnyQConfig) -> bool:
    return bool(getattr(qconfig.activation(), "is_dynamic", False))


def activation_is_statically_quantized(qconfig: AnyQConfig) -> bool:
    """Whether activations have a grid that is found before the model is used."""
    kinds = (*_EIGHT_BITS, qint32, int16, int32)
    return activation_dtype(qconfig) in kinds and not _activation_is_dynamic(qconfig)


def activation_is_dynamically_quantized(qconfig: AnyQConfig) -> bool:
    """Whether activations are put on a grid of their own range, at each call."""
    return _activation_is_dynamic(qconfig)


def activation_is_int8_quantized(qconfig: AnyQConfig) -> bool:
    """Whether activations have 8 bits."""
    return activation_dtype(qconfig) in _EIGHT_BITS


def activation_is_int32_quantized(qconfig: AnyQConfig) -> bool:
    """Whether activations have 32 bits."""
    return activation_dtype(qconfig) in (qint32, int32)


def weight_is_quantized(qconfig: AnyQConfig) -> bool:
    """Whether weights are put on a grid."""
    return weight_dtype(qconfig) in (*_EIGHT_BITS, int16, int32)


def weight_is_statically_quantized(qconfig: AnyQConfig) -> bool:
    """Whether weights have 8 bits."""
    return weight_dtype(qconfig) in _EIGHT_BITS


def op_is_int8_dynamically_quantized(qconfig: AnyQConfig) -> bool:
    """Whether weights have 8 bits, and activations at each call."""
    return (
        activation_dtype(qconfig) in (quint8, uint8)
        and _activation_is_dynamic(qconfig)
        and weight_dtype(qconfig) in (qint8, int8)
    )


def get_qconfig_dtypes(qconfig: AnyQConfig) -> tuple[DType, DType, bool]:
    """The types of activations and weights, and whether activations are quantized at each call."""
    return activation_dtype(qconfig), weight_dtype(qconfig), _activation_is_dynamic(qconfig)


def get_quant_type(qconfig: AnyQConfig) -> QuantType:
    """The kind of quantization that a `QConfig` asks for."""
    activation, weight = qconfig.activation(), qconfig.weight()
    static = (*_EIGHT_BITS, int16, int32)
    if weight.dtype in static:
        if getattr(activation, "is_dynamic", False):
            return QuantType.DYNAMIC
        return QuantType.STATIC if activation.dtype in static else QuantType.WEIGHT_ONLY
    if weight.dtype is float16:
        if getattr(activation, "is_dynamic", False):
            return QuantType.DYNAMIC
        if activation.dtype is float16:
            return QuantType.STATIC
    raise PreconditionError(
        f"Unrecognized dtype combination in get_quant_type: activation({activation.dtype}),weight({weight.dtype})"
    )
