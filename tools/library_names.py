"""The names below `torch` that installed libraries mention, by reading their sources.

`python tools/library_names.py FOLDER`, with PyTorch installed, writes those that PyTorch has to the list that a test
resolves (`tests/drop_in/names.txt`). `weft tools/library_names.py FOLDER --missing` prints those of the list that
Weft lacks, each with the libraries that mention it, the most mentioned first. FOLDER is a `site-packages`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

LIST = Path(__file__).resolve().parent.parent / "tests/drop_in/names.txt"
ROOTS = ("torch", "functorch")
NO_USERS = {*ROOTS, "torchgen", "triton", "weft"}
"""Packages that are parts of PyTorch, or of Weft."""


def mentions(source: str) -> Iterator[str]:
    """The dotted paths below `torch` that a module imports, or reads from what it has imported."""
    tree = ast.parse(source)
    paths: dict[str, str] = {}  # what the names of the module stand for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for entry in node.names:
                if (top := entry.name.split(".")[0]) in ROOTS:
                    yield entry.name
                    paths[entry.asname or top] = entry.name if entry.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in ROOTS:
            yield node.module or ""
            for entry in node.names:
                if entry.name != "*":
                    paths[entry.asname or entry.name] = f"{node.module}.{entry.name}"
                    yield f"{node.module}.{entry.name}"
    inner: set[ast.AST] = set()  # attributes whose chain has been read from its end
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node in inner:
            continue
        parts: list[str] = []
        value: ast.expr = node
        while isinstance(value, ast.Attribute):
            inner.add(value)
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id in paths:
            yield ".".join([paths[value.id], *reversed(parts)])


def users_of(folder: Path) -> dict[str, set[str]]:
    """By dotted path: the libraries in a folder that mention it."""
    users: dict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.rglob("*.py")):
        library = file.relative_to(folder).parts[0].removesuffix(".py")
        if library in NO_USERS:
            continue
        try:
            text = file.read_text(encoding="utf-8")
            for path in mentions(text) if "torch" in text else ():
                users[path].add(library)
        except (SyntaxError, UnicodeDecodeError):
            continue
    return users


def resolve(path: str) -> Any:
    """The object at a dotted path, any part of which may be a module to be imported; `AttributeError` if there is none.

    Attributes go first, then modules: one may have the name of a function that its package exports.
    """
    parts = path.split(".")
    for count in (1, *range(len(parts), 1, -1)):
        try:
            entry = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                entry = getattr(entry, part)
        except (ImportError, AttributeError):
            continue
        return entry
    raise AttributeError(path)


def has(path: str) -> bool:
    """Whether there is something at a path, other than a member of a function or of a plain object."""
    try:
        resolve(path)
        owner = resolve(path.rpartition(".")[0]) if "." in path else None
    except Exception:  # modules of other libraries fail in their own ways
        return False
    return not isinstance(owner, (FunctionType, str, int, float, tuple, dict, list))


def main() -> None:
    parser = argparse.ArgumentParser(description="List the names below torch that libraries mention.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--missing", action="store_true")
    arguments = parser.parse_args()
    users = users_of(arguments.folder)
    if arguments.missing:
        missing = [path for path in LIST.read_text().split() if not has(path)]
        for path in sorted(missing, key=lambda path: (-len(users[path]), path)):
            print(len(users[path]), path, ",".join(sorted(users[path])))
    else:
        LIST.write_text("".join(f"{path}\n" for path in sorted(users) if has(path)))


if __name__ == "__main__":
    main()
