"""Type stubs of the modules that only `weft/_import_paths/table.py` has, one small file for each.

The build of a wheel makes them (`wheel.py`), so the repository is without them, and they cannot be stale. Nothing of
Weft is imported here, since a build has few of its dependencies.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"


def stubs() -> dict[str, str]:
    """The texts of the stubs by their paths in the package."""
    table: dict[str, str] = runpy.run_path(str(SOURCES / "weft/_import_paths/table.py"))["TABLE"]
    texts: dict[str, str] = {}
    for path, entry in table.items():
        if entry.endswith(".*"):
            texts |= dict(tree(path, entry.removesuffix(".*"), table))
    for path, entry in table.items():
        if not entry.endswith(".*"):
            texts[path] = "".join(lines(path, entry, table))
    packages = {path.rpartition(".")[0] for path in texts}
    return {path.replace(".", "/") + ("/__init__.pyi" if path in packages else ".pyi"): texts[path] for path in texts}


def lines(path: str, entry: str, table: dict[str, str]) -> Iterator[str]:
    """The imports that an entry stands for."""
    if entry == "*":
        yield from (all_of(child) for child in sorted(table) if child.rpartition(".")[0] == path)
        return
    for part in filter(None, entry.split("; ")):
        origin, _, names = part.partition(": ")
        if names == "*":
            yield all_of(origin)
            continue
        module = origin if origin == "weft" else f"weft.{origin}"
        for name in names.split():
            new, _, old = name.partition("=")
            yield f"from {module} import {old or new} as {new}\n"


def all_of(path: str) -> str:
    """The import of all names, with those that a module with a file has on first use."""
    base = SOURCES / "weft" / path.replace(".", "/")
    files = (file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists())
    is_lazy = any("__getattr__" in file.read_text(encoding="utf-8") for file in files)
    on_first_use = f"from weft.{path} import __getattr__ as __getattr__\n" if is_lazy else ""
    return f"from weft.{path} import *\n{on_first_use}"


def tree(path: str, target: str, table: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A package that stands for another one, and all below it: modules with files, and modules of the table."""
    yield path, all_of(target)
    root = SOURCES / "weft" / target.replace(".", "/")
    files = (file.relative_to(root).with_suffix("").parts for file in root.rglob("*.py"))
    below = {".".join(part for part in parts if part != "__init__") for parts in files}
    below |= {other.removeprefix(f"{target}.") for other in table if other.startswith(f"{target}.")}
    for name in sorted(name for name in below if name and not any(part[0] == "_" for part in name.split("."))):
        yield f"{path}.{name}", all_of(f"{target}.{name}")
