"""The two names of this package's modules: its own, and those below `torch` where `torch` is this package."""

from __future__ import annotations

import sys

_OWN = "weft"

# no cell: filled when modules are loaded
own_paths: dict[tuple[str, str], tuple[str, str]] = {}
"""The module and name that classes and functions have here, by those of PyTorch's that they have been given."""


def is_torch() -> bool:
    """Whether `torch` is this package in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and torch is sys.modules[_OWN]


def is_own_module(module: str) -> bool:
    """Whether a module of this name, such as the `__module__` of a class, belongs to this package."""
    first = module.partition(".")[0]
    return first == _OWN or (first == "torch" and is_torch())


def own_form(module: str) -> str:
    """The name of a module of this package that begins with its own first word; other names as they are."""
    return module.replace("torch", _OWN, 1) if module.partition(".")[0] == "torch" and is_torch() else module


def public_form(module: str) -> str:
    """The name of a module of this package that begins with `torch` where `torch` is this package."""
    return module.replace(_OWN, "torch", 1) if module.partition(".")[0] == _OWN and is_torch() else module
