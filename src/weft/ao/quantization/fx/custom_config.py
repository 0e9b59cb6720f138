"""What users say about their models besides `QConfig`s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from weft._base.guards import is_mapping
from weft._base.types import Arg, Args, Kwargs
from weft.ao._observing.quant_type import QuantType
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.errors import UnsupportedError, ValueRangeError

_ByMode = dict[QuantType, dict[type, Arg]]


def _quant_type(name: QuantType | str) -> QuantType:
    """The kind of quantization that a dict names, such as "static"."""
    if isinstance(name, QuantType):
        return name
    kinds = {kind.name.lower(): kind for kind in QuantType}
    if name not in kinds:
        raise ValueRangeError(f"a kind of quantization is one of {', '.join(kinds)}, but got {name!r}")
    return kinds[name]


def config_of(entry: object, kind: Arg) -> Arg:
    """A configuration of a kind, or the one that a dict describes; `ValueError` for anything else."""
    if is_mapping(entry):
        return kind.from_dict(dict(entry))
    if not isinstance(entry, kind):
        raise ValueRangeError(f"expected a {kind.__name__} or a dict, but got a {type(entry).__name__}")
    return entry


@dataclass
class StandaloneModuleConfigEntry:
    """How a standalone module is prepared; what is None is as in the whole model, or as if nothing was said."""

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: Any

    def to_tuple(self) -> tuple[object, ...]:
        """The entry as dicts have it."""
        mapping, custom = self.qconfig_mapping, self.prepare_custom_config
        return mapping and mapping.to_dict(), self.example_inputs, custom and custom.to_dict(), self.backend_config


class _CustomConfig:
    """Lists and dicts that can be read from a dict, and written to one. `_KEYS` has the keys, by attribute."""

    _KEYS: ClassVar[dict[str, str]]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {name: value for name, value in vars(self).items() if value} })"

    @classmethod
    def from_dict(cls, config_dict: Kwargs) -> Self:
        """The configuration that a dict as from `to_dict` describes. All keys are optional.

        `NotImplementedError` for other keys.
        """
        config = cls()
        attributes = {key: name for name, key in cls._KEYS.items()}
        for key, value in config_dict.items():
            if key not in attributes:
                raise UnsupportedError(f"{cls.__name__}: no key {key!r}; there are {', '.join(attributes)}")
            config._read(attributes[key], value)
        return config

    def _read(self, name: str, value: Arg) -> None:
        is_by_mode = name.endswith("_mapping")
        read = {_quant_type(kind): dict(pairs) for kind, pairs in value.items()} if is_by_mode else list(value)
        setattr(self, name, read)

    def to_dict(self) -> Kwargs:
        """The configuration as a dict, without what is empty."""
        return {key: self._written(name) for name, key in self._KEYS.items() if getattr(self, name)}

    def _written(self, name: str) -> Arg:
        value = getattr(self, name)
        return {kind.name.lower(): dict(pairs) for kind, pairs in value.items()} if name.endswith("_mapping") else value


class PrepareCustomConfig(_CustomConfig):
    """For `prepare_fx` and `prepare_qat_fx`. Setters return the configuration, so that they can be chained."""

    _KEYS: ClassVar[dict[str, str]] = {
        "standalone_module_names": "standalone_module_name",
        "standalone_module_classes": "standalone_module_class",
        "float_to_observed_mapping": "float_to_observed_custom_module_class",
        "non_traceable_module_names": "non_traceable_module_name",
        "non_traceable_module_classes": "non_traceable_module_class",
        "input_quantized_indexes": "input_quantized_idxs",
        "output_quantized_indexes": "output_quantized_idxs",
        "preserved_attributes": "preserved_attributes",
    }

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[type, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: _ByMode = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: Args,
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: object,
    ) -> PrepareCustomConfig:
        """Prepare the module at a path by itself, as a graph module of its own in that of the model.

        Without a `qconfig_mapping`, the `QConfig` of the module holds for all of it. Floats are passed between it and
        the model, unless the indexes of quantized inputs and outputs in the `prepare_custom_config` say otherwise.
        """
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self,
        module_class: type,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: Args,
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: object,
    ) -> PrepareCustomConfig:
        """Prepare all modules of a type by themselves; see `set_standalone_module_name`, which takes precedence."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

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

    def _read(self, name: str, value: Arg) -> None:
        if not name.startswith("standalone"):
            super()._read(name, value)
            return
        entries = getattr(self, name)
        for at, mapping, example_inputs, custom, backend in value:
            entries[at] = StandaloneModuleConfigEntry(
                None if mapping is None else config_of(mapping, QConfigMapping),
                example_inputs,
                None if custom is None else config_of(custom, PrepareCustomConfig),
                backend,
            )

    def _written(self, name: str) -> Arg:
        if not name.startswith("standalone"):
            return super()._written(name)
        return [(at, *entry.to_tuple()) for at, entry in getattr(self, name).items()]


class ConvertCustomConfig(_CustomConfig):
    """For `convert_fx`. Setters return the configuration, so that they can be chained."""

    _KEYS: ClassVar[dict[str, str]] = {
        "observed_to_quantized_mapping": "observed_to_quantized_custom_module_class",
        "preserved_attributes": "preserved_attributes",
    }

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


class FuseCustomConfig(_CustomConfig):
    """For `fuse_fx`."""

    _KEYS: ClassVar[dict[str, str]] = {"preserved_attributes": "preserved_attributes"}

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: list[str]) -> FuseCustomConfig:
        """Attributes of the model that the fused one has, too."""
        self.preserved_attributes = attributes
        return self
