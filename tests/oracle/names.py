"""The public names of PyTorch's modules, and which of them Weft has: `python -m tests.oracle.names`. Needs torch.

A module's names are those in its `__all__`. Without one, they are what `dir` lists without an underscore, less modules
and what is defined in another public module or outside of PyTorch.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

import torch

from tests.oracle.coverage import PAGE

TITLE = "## Public names"
_NEXT = "\n## "
_HEAD = f"""{TITLE}

Written by `python -m tests.oracle.names` (and by `make oracle`). A name is counted in each public module that lists it
in `__all__`, or, where there is no such list, that defines or re-exports it. Present is what can be imported from
Weft's module of that name.
"""


class Row(NamedTuple):
    """A module's names. `exists` says whether Weft has a module of that name."""

    module: str
    names: list[str]
    missing: list[str]
    exists: bool


def rows() -> Iterator[Row]:
    """Every public module of PyTorch that has names, and can be imported here."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        for module in _modules(torch):
            path = module.__name__.removeprefix("torch").removeprefix(".")
            if names := public(module):
                ours = _imported(f"weft.{path}".rstrip("."))
                yield Row(path, names, [name for name in names if not _has(ours, name)], ours is not None)


def _imported(path: str) -> ModuleType | None:
    try:
        return import_module(path)
    except BaseException:  # some of PyTorch's end the process, or need what is not installed
        return None


def _has(module: ModuleType | None, name: str) -> bool:
    return module is not None and (hasattr(module, name) or _imported(f"{module.__name__}.{name}") is not None)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    """A module, and those below it whose names are public."""
    yield package
    for found in iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        module = None if "._" in found.name or found.name.endswith("__main__") else _imported(found.name)
        if module is not None:
            yield from _modules(module)


def public(module: ModuleType) -> list[str]:
    """The public names of a module."""
    if hasattr(module, "__all__"):
        return sorted(set(module.__all__))
    return [name for name in dir(module) if not name.startswith("_") and _belongs(getattr(module, name), module)]


def _belongs(thing: Any, module: ModuleType) -> bool:
    """Whether a module defines or re-exports what one of its names refers to."""
    origin = getattr(thing, "__module__", None)
    if isinstance(thing, ModuleType):
        return False
    if not isinstance(origin, str) or f"{origin}.".startswith(f"{module.__name__}."):
        return not isinstance(thing, bool) or thing is not False  # TYPE_CHECKING
    return origin.startswith("torch") and "._" in origin


def section() -> str:
    """The table of the modules that Weft has, and the names and modules that are missing."""
    found = list(rows())
    ours, absent = [row for row in found if row.exists], [row for row in found if not row.exists]
    names, missing = (sum(len(getattr(row, field)) for row in found) for field in ("names", "missing"))
    here, lacking = (sum(len(getattr(row, field)) for row in ours) for field in ("names", "missing"))
    packages: dict[str, list[Row]] = {}
    for row in absent:
        packages.setdefault(_package(row.module, absent), []).append(row)
    return "\n".join(
        [
            _HEAD,
            f"{names - missing} of {names} names in {len(found)} modules are present: {here - lacking} of {here} "
            f"in the {len(ours)} modules that Weft has, none of the {names - here} in {len(absent)} others.\n",
            "| module | names | present | missing |",
            "|---|---|---|---|",
            *(
                f"| `{('torch.' + row.module).rstrip('.')}` | {len(row.names)} | {len(row.names) - len(row.missing)} | "
                f"{', '.join(f'`{name}`' for name in row.missing)} |"
                for row in ours
            ),
            "\n### Modules without a counterpart\n",
            "Packages include the modules below them.\n",
            "| module | modules | names |",
            "|---|---|---|",
            *(
                f"| `torch.{package}` | {len(below)} | {sum(len(row.names) for row in below)} |"
                for package, below in sorted(packages.items())
            ),
            "",
        ]
    )


def _package(module: str, absent: list[Row]) -> str:
    """The outermost package around a module that is absent, too."""
    paths = {row.module for row in absent}
    parts = module.split(".")
    return next(p for p in (".".join(parts[:n]) for n in range(1, len(parts) + 1)) if p in paths)


def main() -> None:
    """Write the section into the page, in the place of the one that is there."""
    before, title, rest = PAGE.read_text().partition(TITLE)
    after = rest.partition(_NEXT) if title else before.partition("\n## Distributed programs")
    before = before if title else after[0] + "\n"
    PAGE.write_text(f"{before}{section()}{after[1]}{after[2]}")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # some of the modules have started threads
