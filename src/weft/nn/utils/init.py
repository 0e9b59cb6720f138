"""Modules with uninitialised parameters."""

from __future__ import annotations

import inspect
from typing import TypeVar

from weft._base.types import Arg
from weft.errors import ModuleError
from weft.nn._module import Module

M = TypeVar("M", bound="Module")


def skip_init(module_cls: type[M], *args: Arg, **kwargs: Arg) -> M:
    """`module_cls(*args, **kwargs)` with uninitialised parameters. Its constructor must take a `device`."""
    if Module not in inspect.getmro(module_cls):
        raise ModuleError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ModuleError("Module must support a 'device' arg to skip initialization")
    device = kwargs.setdefault("device", "cpu")
    return module_cls(*args, **kwargs).to_empty(device=device)  # the initial values, only recorded, are never computed
