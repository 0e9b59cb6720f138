"""Which `QConfig` goes with which part of a model, as graph mode reads it."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft._base.types import AnyCallable, Kwargs
from weft._tensor.codegen import op
from weft.ao._observing.fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from weft.ao._observing.observer import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from weft.ao._observing.qconfig import (
    QConfig,
    QConfigAny,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)
from weft.nn import functional as F
from weft.nn._activation import Hardsigmoid, PReLU, Sigmoid, Softmax, Tanh
from weft.nn._conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn._norm import LayerNorm

STYLES = {
    "object_type": "object_type_qconfigs",
    "module_name_regex": "module_name_regex_qconfigs",
    "module_name": "module_name_qconfigs",
    "module_name_object_type_order": "module_name_object_type_order_qconfigs",
}
"""The keys of `to_dict`, and the attributes of a mapping; later ones take precedence."""


class QConfigMapping:
    """`QConfig`s for a whole model, for types of modules and functions, and for names of modules.

    What is more specific takes precedence. Setters return the mapping, so that they can be chained.
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfigAny = None
        self.object_type_qconfigs: OrderedDict[AnyCallable | str, QConfigAny] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[tuple[str, AnyCallable, int], QConfigAny] = (
            OrderedDict()
        )

    def set_global(self, global_qconfig: QConfigAny) -> QConfigMapping:
        """Set the one for all parts without another one."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Callable[..., object] | str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the one for a class of modules, a function, or the name of a method."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the one for modules whose path matches; the first expression that matches decides."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the one for a module by its path."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Callable[..., object], index: int, qconfig: QConfigAny
    ) -> QConfigMapping:
        """Set the one for the n-th use of a function within a module."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} (", " global_qconfig", f"  {self.global_qconfig}"]
        for name in STYLES.values():
            held = getattr(self, name)
            lines.append(f" {name}")
            lines += [f"  {key}: {qconfig}" for key, qconfig in held.items()] or [f"  {held}"]
        return "\n".join([*lines, ")"])

    def to_dict(self) -> Kwargs:
        """The mapping as a dict: `""` has the global one, other keys have lists of tuples."""
        result: Kwargs = {"": self.global_qconfig}
        for key, name in STYLES.items():
            held = getattr(self, name).items()
            result[key] = [(*at, qconfig) if isinstance(at, tuple) else (at, qconfig) for at, qconfig in held]
        return result

    @classmethod
    def from_dict(cls, qconfig_dict: Kwargs) -> QConfigMapping:
        """The mapping that a dict as from `to_dict` describes; all keys are optional."""
        mapping = cls()
        if "" in qconfig_dict:
            mapping.set_global(qconfig_dict[""])
        for key in STYLES:
            for entry in qconfig_dict.get(key, []):
                getattr(mapping, f"set_{key}")(*entry)
        return mapping


_FIXED: tuple[tuple[Any, Any], ...] = (
    (
        default_fixed_qparams_range_0to1_observer,
        (
            Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            Sigmoid,
            op.sigmoid,
            "sigmoid",
            "sigmoid_",
            Softmax,
        ),
    ),
    (default_fixed_qparams_range_neg1to1_observer, (Tanh, op.tanh, "tanh", "tanh_")),
)
"""Observers with a fixed grid, and what has results in its range."""


def _default_mapping(qconfig: QConfig, backend: str, *, is_qat: bool) -> QConfigMapping:
    weight = default_weight_fake_quant if is_qat else default_weight_observer
    transposed = QConfig(qconfig.activation, weight) if backend in ("fbgemm", "x86") else qconfig
    normalised = QConfig(qconfig.activation, default_placeholder_observer)
    mapping = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for kind in (
        *(ConvTranspose1d, ConvTranspose2d, ConvTranspose3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
    ):
        mapping.set_object_type(kind, transposed)
    mapping.set_object_type(F.layer_norm, normalised).set_object_type(LayerNorm, normalised)
    mapping.set_object_type(PReLU, default_quint8_weight_qconfig)
    for observer, kinds in _FIXED:
        activation = FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer
        for kind in kinds:
            mapping.set_object_type(kind, QConfig(activation, weight))
    return mapping


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The mapping for calibration, with `get_default_qconfig(backend)` for most parts."""
    return _default_mapping(get_default_qconfig(backend, version), backend, is_qat=False)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The mapping for quantization-aware training, with `get_default_qat_qconfig(backend)` for most parts."""
    return _default_mapping(get_default_qat_qconfig(backend, version), backend, is_qat=True)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"`{old}` is deprecated. Please use `{new}` instead.", FutureWarning, stacklevel=3)


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> Kwargs:
    """`get_default_qconfig_mapping` as a dict."""
    _warn("get_default_qconfig_dict", "get_default_qconfig_mapping")
    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> Kwargs:
    """`get_default_qat_qconfig_mapping` as a dict."""
    _warn("get_default_qat_qconfig_dict", "get_default_qat_qconfig_mapping")
    return get_default_qat_qconfig_mapping(backend, version).to_dict()
