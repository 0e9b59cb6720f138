"""Finds the modules of the table: `import weft.optim.adamw`, and, where `torch` is Weft, `import torch.optim.adamw`.

A package below which the table has modules calls `serve_below`. That adds to its `__path__`, behind its folder, an
entry for which a hook of `sys.path_hooks` gives a finder. So the import system, `importlib.util.find_spec`, `pkgutil`
and the alias `torch` all find these modules in their ordinary way, and imports of other packages cost nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from weft._base.interrupts import uninterrupted

_ROOT = "weft"
_IMPORTED_WITH_TORCH = ("weft._dynamo", "weft._inductor")
"""Modules with a private name that are attributes of PyTorch's package without an import."""
_MARK = os.sep + "<table of names>"
"""How the entry in a package's `__path__` ends, after the package's name. There is no such file."""


def serve_below(package: str) -> None:
    """Let the table's modules below a package be found, and be its attributes as those with files are.

    It is called where the package's `__init__` ends.
    """
    module = sys.modules[package]
    entry = package + _MARK
    path = vars(module).setdefault("__path__", [])  # a file becomes a package by it
    if entry not in path:
        path.append(entry)
    if _hook not in sys.path_hooks:
        sys.path_hooks.append(_hook)
    inherited = vars(module).get("__getattr__")
    inherited_names = vars(module).get("__dir__", lambda: vars(module))

    def get(name: str) -> Any:
        try:
            return _lacking(package, name, names) if inherited is None else inherited(name)
        except AttributeError:
            if name not in children(package) and not _has_file(package, name):
                raise
        return import_module(f"{package}.{name}")

    def names() -> list[str]:
        return sorted({*inherited_names(), *children(package)})

    vars(module).update(__getattr__=get, __dir__=names)
    if package != _ROOT:  # which has no functions with names of modules, and would import all to find that out
        module.__class__ = _Package


def _has_file(package: str, name: str) -> bool:
    """Whether a module of a package that PyTorch shows, too, has a file: it has imported many with the package."""
    return (not name.startswith("_") or f"{package}.{name}" in _IMPORTED_WITH_TORCH) and PathFinder.find_spec(
        f"{package}.{name}", sys.modules[package].__path__
    ) is not None


class _Package(ModuleType):
    """A package in which no module of the table takes the place of a function of the same name, such as `replicate`."""

    def __setattr__(self, name: str, value: object) -> None:  # the import system does so with each module it has loaded
        is_of_table = (
            isinstance(value, ModuleType) and value.__spec__ and isinstance(value.__spec__.loader, TableLoader)
        )
        if not (is_of_table and callable(getattr(self, name, None))):
            super().__setattr__(name, value)


def children(package: str) -> list[str]:
    """The last names of the modules that the table has directly below a package."""
    target = _tree_target(package)
    below = [] if target is None else import_module("weft._base.exports").children(import_module(target))
    return sorted({*_listed_below().get(package, ()), *(name for name in below if not name.startswith("_"))})


def names_of(module: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """The names of a module of the table, with the modules and names that they have there; and whole modules."""
    single: dict[str, tuple[str, str]] = {}
    text = _table().get(module.removeprefix(f"{_ROOT}."))
    if text is None or text.endswith(".*"):
        return single, [_tree_target(module) or ""]
    if text == "*":
        return single, [f"{module}.{child}" for child in children(module)]
    whole: list[str] = []
    for part in filter(None, text.split("; ")):
        path, _, names = part.partition(": ")
        origin = path if path == _ROOT else f"{_ROOT}.{path}"
        if names == "*":
            whole.append(origin)
            continue
        for name in names.split():
            new, _, old = name.partition("=")
            single[new] = (origin, old or new)
    return single, whole


def _table() -> dict[str, str]:
    return import_module("weft._import_paths.table").TABLE  # not before one of its modules is looked for


@cache
def _listed_below() -> dict[str, list[str]]:
    """By package, the modules directly below it that have an entry."""
    modules: dict[str, list[str]] = {}
    for path in _table():
        package, _, name = f"{_ROOT}.{path}".rpartition(".")
        modules.setdefault(package, []).append(name)
    return modules


@cache
def _tree_target(name: str) -> str | None:
    """The module whose names a module has that lies at or below an entry for another package; None elsewhere."""
    table, path = _table(), name.removeprefix(f"{_ROOT}.")
    top = path
    while top and top not in table:
        top = top.rpartition(".")[0]
    if not table.get(top, "").endswith(".*"):
        return None
    return f"{_ROOT}.{table[top].removesuffix('.*')}{path.removeprefix(top)}"


def _is_package(name: str) -> bool:
    target = _tree_target(name)
    return name in _listed_below() or (target is not None and hasattr(import_module(target), "__path__"))


def _hook(entry: str) -> _Finder:
    if not entry.endswith(_MARK):
        raise ImportError(f"{entry} is not of the table", path=entry)
    return _Finder(entry.removesuffix(_MARK))


class _Finder:
    """Finds the modules of the table that are directly below a package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != self._package or name not in children(package):
            return None
        spec = ModuleSpec(fullname, _LOADER, origin="the table of names", is_package=_is_package(fullname))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(fullname + _MARK)
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """For `pkgutil`: the modules, and which of them are packages."""
        for name in children(self._package):
            yield prefix + name, _is_package(f"{self._package}.{name}")


class TableLoader:
    """Makes a module whose names are imported on first use."""

    def create_module(self, spec: ModuleSpec) -> None:
        """None: an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        get, names = _access(module)
        path = module.__name__.removeprefix(f"{_ROOT}.")
        module.__class__ = _Package
        vars(module).update(__getattr__=get, __dir__=names, __doc__=f"The names of PyTorch's module `{path}`.")


_LOADER: Any = TableLoader()


def _access(module: ModuleType) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module of the table."""
    package = module.__name__
    single, whole = names_of(package)

    def get(name: str) -> Any:
        if name == "__all__":  # `import *` asks for it
            return [name for name in exported() if not name.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(name)
        if name in single:
            origin, old = single[name]
            with uninterrupted:  # jax, once interrupted while it is imported, cannot be imported any more
                value = getattr(import_module(origin), old)
            setattr(module, name, value)
            return value
        is_below = name in children(package)
        for origin in whole:
            value = getattr(import_module(origin), name, None)
            if value is not None and not (is_below and isinstance(value, ModuleType)):
                return value
        return import_module(f"{package}.{name}") if is_below else _lacking(package, name, names)

    def exported() -> list[str]:
        return sorted({*single, *(name for origin in whole for name in dir(import_module(origin)) if name[:2] != "__")})

    def names() -> list[str]:
        return sorted({*vars(module), *exported(), *children(package)})

    return get, names


def _lacking(module: str, name: str, names: Callable[[], list[str]]) -> Any:
    raise import_module("weft._base.exports").missing(module, name, names)
