"""Several `QConfig`s for each part of a model, which are tried side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from weft._base.guards import is_tuple
from weft.ao._observing.qconfig import QConfigAny, qconfig_equals
from weft.ao.quantization.qconfig_mapping import STYLES, QConfigMapping

QConfigs = Sequence[QConfigAny]


class QConfigMultiMapping:
    """A list of `QConfigMapping`s, in `qconfig_mappings_list`, each with one `QConfig` of what the setters are given.

    Setters are those of `QConfigMapping`, with a list of distinct `QConfig`s. Where the lists differ in length, the
    shorter ones are filled up with None, so that a mapping has no more general `QConfig` in place of one that ran out.
    """

    def __init__(self) -> None:
        self.qconfig_mappings_list: list[QConfigMapping] = [QConfigMapping()]

    def _set(self, setter: str, key: tuple[object, ...], qconfigs: QConfigs) -> QConfigMultiMapping:
        distinct: list[QConfigAny] = []
        for qconfig in qconfigs:
            if qconfig is not None and not any(qconfig_equals(qconfig, other) for other in distinct):
                distinct.append(qconfig)
        mappings = self.qconfig_mappings_list
        while len(mappings) < len(distinct):
            mappings.append(self._without_qconfigs())
        distinct += [None] * (len(mappings) - len(distinct))
        for mapping, qconfig in zip(mappings, distinct, strict=True):
            getattr(mapping, setter)(*key, qconfig)
        return self

    def _without_qconfigs(self) -> QConfigMapping:
        """A mapping with None for all keys that the others have."""
        mapping = QConfigMapping()
        for name in STYLES.values():
            getattr(mapping, name).update(dict.fromkeys(getattr(self.qconfig_mappings_list[0], name)))
        return mapping

    def set_global(self, global_qconfig_list: QConfigs) -> QConfigMultiMapping:
        """Set those for all parts without others."""
        return self._set("set_global", (), global_qconfig_list)

    def set_object_type(self, object_type: Callable[..., object] | str, qconfig_list: QConfigs) -> QConfigMultiMapping:
        """Set those for a class of modules, a function, or the name of a method."""
        return self._set("set_object_type", (object_type,), qconfig_list)

    def set_module_name_regex(self, module_name_regex: str, qconfig_list: QConfigs) -> QConfigMultiMapping:
        """Set those for modules whose path matches."""
        return self._set("set_module_name_regex", (module_name_regex,), qconfig_list)

    def set_module_name(self, module_name: str, qconfig_list: QConfigs) -> QConfigMultiMapping:
        """Set those for a module by its path."""
        return self._set("set_module_name", (module_name,), qconfig_list)

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Callable[..., object], index: int, qconfig_list: QConfigs
    ) -> QConfigMultiMapping:
        """Set those for the n-th use of a function within a module."""
        return self._set("set_module_name_object_type_order", (module_name, object_type, index), qconfig_list)

    @classmethod
    def from_list_qconfig_mapping(cls, qconfig_mapping_list: list[QConfigMapping]) -> QConfigMultiMapping:
        """The mapping that has these `QConfigMapping`s, each filled up with None for the keys of the others."""
        result = cls()
        result.qconfig_mappings_list = copy.deepcopy(qconfig_mapping_list)
        for style, name in STYLES.items():
            keys = dict.fromkeys(key for mapping in qconfig_mapping_list for key in getattr(mapping, name))
            for key in keys:
                held = [
                    getattr(mapping, name)[key] for mapping in qconfig_mapping_list if key in getattr(mapping, name)
                ]
                result._set(f"set_{style}", key if is_tuple(key) else (key,), held)
        return result

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__} [", *(f"{mapping}," for mapping in self.qconfig_mappings_list), "]"])
