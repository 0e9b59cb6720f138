"""Modules of settings: attributes that programs read and set, for good or within a block."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from contextlib import ContextDecorator
from types import MappingProxyType, ModuleType
from typing import Any

from weft._base.exports import missing
from weft._base.types import AttributeValue


class _Settings:
    """Settings whose names begin alike: `config.triton.cudagraphs` is "triton.cudagraphs"."""

    def __init__(self, module: SettingsModule, prefix: str) -> None:
        object.__setattr__(self, "_of", (module, prefix))

    def __getattr__(self, name: str) -> AttributeValue:
        module, prefix = self._of
        return getattr(module, f"{prefix}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        module, prefix = self._of
        setattr(module, f"{prefix}.{name}", value)


class SettingsModule(ModuleType):
    """A module whose attributes are settings. Only those that it has can be set."""

    _settings: dict[str, Any]
    _aliases: Mapping[str, str]

    def __getattr__(self, name: str) -> AttributeValue:
        settings = vars(self).get("_settings", {})
        name = vars(self).get("_aliases", {}).get(name, name)
        if name in settings:
            return settings[name]
        if any(key.startswith(f"{name}.") for key in settings):
            return _Settings(self, name)
        raise missing(self.__name__, name, lambda: settings)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
            return
        getattr(self, name)
        self._settings[self._aliases.get(name, name)] = value

    def __dir__(self) -> list[str]:
        return sorted({*self._settings, *super().__dir__()})

    def patch(self, arg1: str | Mapping[str, Any] | None = None, arg2: Any = None, **kwargs: Any) -> _Patch:
        """Other settings within a block, or in calls of a decorated function: one, several in a dict, or by keyword."""
        changes = dict(kwargs) if arg1 is None else {arg1: arg2} if isinstance(arg1, str) else dict(arg1)
        for name in changes:
            getattr(self, name)
        return _Patch(self, changes)

    def get_config_copy(self) -> dict[str, Any]:
        """All settings, in a dict of their own."""
        return copy.deepcopy(self._settings)

    shallow_copy_dict = to_dict = get_config_copy

    def load_config(self, maybe_pickled_config: Mapping[str, Any]) -> None:
        """Take the settings that `get_config_copy` or `save_config_portable` has returned."""
        self._settings.update({name: x for name, x in maybe_pickled_config.items() if name in self._settings})

    def save_config_portable(self, *, ignore_private_configs: bool = True) -> dict[str, Any]:
        """All settings but those that begin with an underscore."""
        every = self.get_config_copy()
        return {name: x for name, x in every.items() if not (ignore_private_configs and name.startswith("_"))}


class _Patch(ContextDecorator):
    def __init__(self, module: SettingsModule, changes: Mapping[str, Any]) -> None:
        self._module, self._changes = module, changes
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._before.append({name: getattr(self._module, name) for name in self._changes})
        for name, value in self._changes.items():
            setattr(self._module, name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.pop().items():
            setattr(self._module, name, value)


def become_settings(name: str, settings: dict[str, Any], aliases: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make a module that is being imported one of settings. The dict has their values now and later.

    `aliases` are older names.
    """
    module = sys.modules[name]
    vars(module).update(_settings=settings, _aliases=aliases)
    module.__class__ = SettingsModule
