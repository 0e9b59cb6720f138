"""The shape of the sources: who may import whom, where imports stand, how large files are, and what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

import weft
from weft._import_paths.table import TABLE

ROOT = Path(weft.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LOWER = [{"errors", "_base", "_import_paths"}, {"_comm", "ops"}, {"_lazy"}, {"_autograd"}, {"_dispatch"}, {"_tensor"}]
UPPER = [{"distributed"}, {"xla"}]
LAZY = "_api.py"  # loads by name what is public, so that importing the package costs nothing
COMMANDS = {"__main__.py", "_tensor/stubs.py"}  # run by `python -m`, never imported: they may look at everything


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


BOUND = [path for path in FILES if name_of(path) not in {"__init__.py", LAZY, *COMMANDS}]
MOST_LINES = 500


def layer(part: str) -> int:
    """The layer of a module or folder of the package; what users import shares one."""
    layers = [*LOWER, set[str](), *UPPER]
    return next((at for at, parts in enumerate(layers) if part in parts), len(LOWER))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def own_part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> list[str]:
    """The modules that the imports below a node name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [entry.name for entry in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found.append(node.module or "")
            found += [f"weft.{entry.name}" for entry in node.names if node.module == "weft"]
    return found


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def on_top(tree: ast.Module) -> ast.Module:
    """The file without the blocks that only type checkers read."""
    return ast.Module([node for node in tree.body if not is_type_checking(node)], [])


def test_imports_run_downwards():
    assert not [
        f"{name_of(path)} imports {name}"
        for path in BOUND
        for name in imports(on_top(parsed(path)))
        if name.startswith("weft.")
        and (there := name.split(".")[1]) != own_part(path)
        and layer(there) > layer(own_part(path))
    ]


def test_nothing_imports_a_module_of_names():
    """They are for users, and the code that they name may not be loaded yet."""
    served = {f"weft.{path}" for path in TABLE}
    assert not [f"{name_of(path)} imports {name}" for path in FILES for name in {*imports(parsed(path))} & served]


def module_name(path: Path) -> str:
    parts = ("weft", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, modules: Collection[str]) -> set[str]:
    """Those of `modules` that a file imports, also where only type checkers read it."""
    tree = parsed(path)
    found = set(imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{entry.name}" for entry in node.names} & set(modules)
            found |= whole
            if len(whole) == len(node.names):
                found.discard(node.module or "")
    return found & set(modules)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each leads to all others."""
    reached = {start: reachable(start, graph) for start in graph}
    sets = {frozenset(m for m in there if start in reached[m]) for start, there in reached.items() if start in there}
    return [set(one) for one in sets]


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """What the imports of a module lead to: itself only in a circle."""
    found, waiting = set(), [start]
    while waiting:
        fresh = graph[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]


def test_imports_make_no_circle():
    files = {module_name(path): path for path in FILES}
    graph = {name: imported_modules(path, files.keys()) for name, path in files.items()}
    assert not circles(graph)


def test_imports_stand_on_top():
    assert not [
        f"{name_of(path)}:{inner.lineno}"
        for path in BOUND
        for function in ast.walk(on_top(parsed(path)))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(function)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]


def test_only_public_jax_is_used():
    assert not [name_of(path) for path in FILES if "jax._src" in path.read_text(encoding="utf-8")]


def test_files_are_short():
    assert not [name_of(path) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) >= MOST_LINES]


def test_importing_the_package_loads_no_arrays():
    script = "import sys, weft; print(sorted({'jax', 'numpy', 'ml_dtypes'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# --- what is public ---


def is_public(path: Path) -> bool:
    """An `__init__.py` that users import from; the package's own one loads by name."""
    parts = path.relative_to(ROOT).parts
    return path.name == "__init__.py" and len(parts) > 1 and not any(p.startswith("_") for p in parts[:-1])


PUBLIC = [path for path in FILES if is_public(path) and own_part(path) != "ops"]


@pytest.mark.parametrize("path", PUBLIC, ids=[name_of(path.parent) for path in PUBLIC])
def test_a_public_package_only_exports(path):
    doc, *body = parsed(path).body
    assert isinstance(doc, ast.Expr)
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("_on_first_use(__name__, "):
            continue
        if ast.unparse(node) == "_serve_below(__name__)":
            continue
        assert isinstance(node, ast.ImportFrom), f"line {node.lineno} does more than export"
        if node.module not in ("__future__", "weft._base.exports", "weft._import_paths.finder"):
            assert all(entry.asname == entry.name for entry in node.names), f"line {node.lineno} exports nothing"


def test_public_names_are_sorted_and_load():
    names = dir(weft)
    assert names == sorted(set(names))
    for name in names:
        assert hasattr(weft, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'weft' has no attribute 'no_such_name'$"):
        weft.no_such_name
