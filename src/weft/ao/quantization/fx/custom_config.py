"""What users say about their models besides `QConfig`s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from weft.ao._observing.quant_type import QuantType
from weft.errors import UnsupportedError, ValueRangeError

_ByMode = dict[QuantType, dict[type, type]]


def _quant_type(name: Any) -> QuantType:
    """The kind of quantization that a dict names, such as "static"."""
    if isinstance(name, QuantType):
        return name
    kinds = {kind.name.lower(): kind for kind in QuantType}
    if name not in kinds:
        raise ValueRangeError(f"a kind of quantization is one of {', '.join(kinds)}, but got {name!r}")
    return kinds[name]


def _from_dict(config: Any, entries: Mapping[str, Any]) -> Any:
    """Fill a configuration from a dict. Its keys are those of `to_dict`; `NotImplementedError` for others."""
    keys = config.to_dict().keys()
    for key, value in entries.items():
        if key not in keys:
            raise UnsupportedError(f"{type(config).__name__}: no key {key!r}; there are {', '.join(keys)}")
        if key in ("float_to_observed_custom_module_class", "observed_to_quantized_custom_module_class"):
            classes = {_quant_type(name): dict(pairs) for name, pairs in value.items()}
            name = "float_to_observed_mapping" if key.startswith("float") else "observed_to_quantized_mapping"
            setattr(config, name, classes)
        else:
            setattr(config, _ATTRIBUTES.get(key, key), list(value))
    return config


_ATTRIBUTES = {
    "non_traceable_module_name": "non_traceable_module_names",
    "non_traceable_module_class": "non_traceable_module_classes",
    "input_quantized_idxs": "input_quantized_indexes",
    "output_quantized_idxs": "output_quantized_indexes",
}


def _as_dict(classes: _ByMode) -> dict[str, dict[type, type]]:
    return {kind.name.lower(): dict(pairs) for kind, pairs in classes.items()}


def _no_standalone(what: str, setter: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: there are no standalone modules. A part that can be traced needs nothing; for a QConfig of its own, "
        f"use QConfigMapping().set_module_name(...); what cannot be traced stays on floats by {setter}"
    )


class PrepareCustomConfig:
    """For `prepare_fx` and `prepare_qat_fx`. Setters return the configuration, so that they can be chained."""

    def __init__(self) -> None:
        self.float_to_observed_mapping: _ByMode = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_float_to_observed_mapping(
        self, float_class: type, observed_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> PrepareCustomConfig:
        """Replace users' modules by `observed_class.from_float(module)`."""
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Paths of modules that are single nodes, on floats."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Types of modules that are single nodes, on floats."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Inputs of the converted model that are quantized tensors."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Results of the converted model that stay quantized tensors."""
        self.output_quantized_indexes = indexes
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> PrepareCustomConfig:
        """Attributes of the model that the prepared one has, too."""
        self.preserved_attributes = attributes
        return self

    def set_standalone_module_name(self, module_name: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `NotImplementedError`: no part of a model is prepared by itself."""
        del args, kwargs
        raise _no_standalone(repr(module_name), "set_non_traceable_module_names")

    def set_standalone_module_class(self, module_class: type, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `NotImplementedError`: no part of a model is prepared by itself."""
        del args, kwargs
        raise _no_standalone(module_class.__name__, "set_non_traceable_module_classes")

    @classmethod
    def from_dict(cls, prepare_custom_config_dict: dict[str, Any]) -> PrepareCustomConfig:
        """The configuration that a dict as from `to_dict` describes; all keys are optional."""
        return _from_dict(cls(), prepare_custom_config_dict)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a dict."""
        return {
            "float_to_observed_custom_module_class": _as_dict(self.float_to_observed_mapping),
            "non_traceable_module_name": self.non_traceable_module_names,
            "non_traceable_module_class": self.non_traceable_module_classes,
            "input_quantized_idxs": self.input_quantized_indexes,
            "output_quantized_idxs": self.output_quantized_indexes,
            "preserved_attributes": self.preserved_attributes,
        }


class ConvertCustomConfig:
    """For `convert_fx`. Setters return the configuration, so that they can be chained."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: _ByMode = {}
        self.preserved_attributes: list[str] = []

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> ConvertCustomConfig:
        """Replace users' observed modules by `quantized_class.from_observed(module)`."""
        self.observed_to_quantized_mapping.setdefault(quant_type, {})[observed_class] = quantized_class
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> ConvertCustomConfig:
        """Attributes of the prepared model that the converted one has, too."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict: dict[str, Any]) -> ConvertCustomConfig:
        """The configuration that a dict as from `to_dict` describes; all keys are optional."""
        return _from_dict(cls(), convert_custom_config_dict)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a dict."""
        return {
            "observed_to_quantized_custom_module_class": _as_dict(self.observed_to_quantized_mapping),
            "preserved_attributes": self.preserved_attributes,
        }


class FuseCustomConfig:
    """For `fuse_fx`."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: list[str]) -> FuseCustomConfig:
        """Attributes of the model that the fused one has, too."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, fuse_custom_config_dict: dict[str, Any]) -> FuseCustomConfig:
        """The configuration that a dict as from `to_dict` describes."""
        return _from_dict(cls(), fuse_custom_config_dict)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a dict."""
        return {"preserved_attributes": self.preserved_attributes}
