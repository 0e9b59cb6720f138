"""Public packages whose names are imported on first use."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from weft._base.interrupts import uninterrupted
from weft._base.types import AttributeValue
from weft.errors import MissingNameError


def on_first_use(
    package: str, names: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that exports `names`, by module, and some of its own `modules`.

    The names "*" of a package are all that it exports by this function.
    """
    module_of: dict[str, str] = {}
    for module, members in names.items():
        if members == "*":
            import_module(module)
            module_of |= _MODULE_OF[module]
        else:
            module_of |= dict.fromkeys(members, module)
    _MODULE_OF[package] = module_of

    def get(name: str) -> AttributeValue:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise missing(package, name, names_of)
        with uninterrupted:  # jax, once interrupted while it is imported, cannot be imported any more
            value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules, *module_of})

    return get, names_of


# no cell: the names of a package do not change
_MODULE_OF: dict[str, dict[str, str]] = {}
"""The modules of the names that are imported on first use, by package."""


def origin_of(package: str, name: str) -> tuple[str, str]:
    """The module and name from which a package has a name that is imported on first use; ("", "") for others."""
    if package == "weft":
        return import_module("weft._api").LOCATIONS.get(name, ("", ""))
    module = _MODULE_OF.get(package, {}).get(name)
    return (module, name) if module else ("", "")


def missing(module: str, name: str, names: Callable[[], Iterable[str]]) -> MissingNameError:
    """The error for a name that a module lacks. Its text, which programs seldom read, is made when it is read."""
    return MissingNameError(module, name, lambda: nearest(name, names()))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that resembles this one most, if there is any."""
    by_lower_case = {entry.lower(): entry for entry in names if not entry.startswith("_")}
    matches = get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def children(package: ModuleType) -> list[str]:
    """The names of the modules in a package."""
    return [entry.name for entry in pkgutil.iter_modules(getattr(package, "__path__", ()))]
