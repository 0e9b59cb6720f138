"""The shape of the sources: who may import whom, where imports stand, how large files are, and what is public.

`python -m tests.test_layers` prints what each part of the package imports.
"""

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
DESIGN = Path(__file__).parent.parent / "docs/design.md"

LAYERS = [
    ("errors, versions", "errors version torch_version _symbols"),
    ("types, devices, settings; no arrays", "_base"),
    ("where names are", "_absent _import_paths"),
    ("trees of containers, settings of loading", "__future__ utils._pytree"),
    ("the operator table: arrays, no tensors", "ops"),
    ("bytes between processes: no tensors, no jax", "_comm futures multiprocessing"),
    ("values not computed yet", "_lazy"),
    ("derivatives and the backward pass, over values", "_autograd"),
    ("the general path of every call", "_dispatch"),
    ("tensors, and the functions over them", "_tensor"),
    (
        "functions by their subject, and what computes on tensors alone",
        "_assertions _prims_common _switches autograd compiler fft linalg masked nested owners quasirandom random "
        "return_types signal sparse special testing types",
    ),
    ("types of devices; operators of users, and of jax", "_devices _interop"),
    ("devices, and libraries of operators, as users see them", "accelerator cpu cuda library mps mtia xpu"),
    ("switches of backends", "backends"),
    ("modules", "nn"),
    (
        "what takes modules",
        "_checkpoint _extension _utils distributions func optim overrides profiler",
    ),
    ("PyTorch's name of the reader of pickles that runs no code", "_weights_only_unpickler"),
    ("what takes optimizers, checkpoints and profiles", "amp export serialization utils"),
    ("programs as graphs; repositories of models", "fx hub jit"),
    ("graphs for compilers of users, and names of PyTorch's own", "_dynamo _inductor"),
    ("several processes", "distributed"),
    ("what rewrites graphs, and what starts and shows jobs", "_tools ao xla"),
    (
        "PyTorch's paths to what stands elsewhere",
        "__config__ autograd.profiler autograd.profiler_legacy cpu.amp cuda.amp "
        "distributed.elastic.rendezvous.etcd_rendezvous distributed.elastic.rendezvous.etcd_rendezvous_backend "
        "distributed.elastic.rendezvous.etcd_server distributed.elastic.rendezvous.etcd_store distributed.launch "
        "distributed.run monitor onnx",
    ),
]
"""What each layer holds, and its parts: modules and folders of the package, from the lowest layer to the highest.

A part imports itself and what stands in lower layers, so parts of one layer do not know each other. A module below a
part that is a part of its own, such as `cuda.amp`, does not belong to the former. What users reach by a lower path than
its layer is loaded by name, on first use (`weft._base.exports`).
"""

LAYER_OF = {part: at for at, (_, parts) in enumerate(LAYERS) for part in parts.split()}
LAZY = "_api.py"  # loads by name what is public, so that importing the package costs nothing
COMMANDS = {"__main__.py", "_tensor/stubs.py"}  # run by `python -m`, never imported: they may look at everything


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


BOUND = [path for path in FILES if name_of(path) not in {"__init__.py", LAZY, *COMMANDS}]
MOST_LINES = 500


def part_of(module: str) -> str:
    """The part to which a module belongs: `weft.cuda.amp.autocast_mode` to `cuda.amp`."""
    part = module.removeprefix("weft.")
    while part not in LAYER_OF:
        part, dot, _ = part.rpartition(".")
        assert dot, f"{module} is in no layer: add it to LAYERS"
    return part


def parsed(path: Path) -> ast.Module:
    """The tree of a file. It is kept by nobody: the garbage collector would go through millions of nodes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file, wherever they stand, also those that only type checkers read."""
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def own_part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    """The modules that the imports of a file name."""
    found = []
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found += [entry.name for entry in node.names]
        else:
            assert not node.level, "imports are absolute"
            found.append(node.module or "")
            found += [f"weft.{entry.name}" for entry in node.names if node.module == "weft"]
    return found


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def on_top(tree: ast.Module) -> ast.Module:
    """The file without the blocks that only type checkers read."""
    return ast.Module([node for node in tree.body if not is_type_checking(node)], [])


def test_nothing_imports_a_module_of_names():
    """They are for users, and the code that they name may not be loaded yet."""
    served = {f"weft.{path}" for path in TABLE}
    assert not [f"{name_of(path)} imports {name}" for path in FILES for name in {*imports(path)} & served]


def module_name(path: Path) -> str:
    parts = ("weft", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, modules: Collection[str]) -> set[str]:
    """Those of `modules` that a file imports."""
    found = set(imports(path))
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{entry.name}" for entry in node.names} & set(modules)
            found |= whole
            if len(whole) == len(node.names):
                found.discard(node.module or "")
    return found & set(modules)


def graph_of_parts() -> dict[str, set[str]]:
    """The parts that each part imports, itself left out; also what only type checkers read."""
    graph = {part: set[str]() for part in LAYER_OF}
    modules = {module_name(path): path for path in BOUND}
    for name, path in modules.items():
        part = part_of(name)
        graph[part] |= {part_of(there) for there in imported_modules(path, modules)} - {part}
    return graph


def test_imports_run_downwards():
    assert not [
        f"{part} (layer {LAYER_OF[part]}) imports {there} (layer {LAYER_OF[there]})"
        for part, imported in graph_of_parts().items()
        for there in sorted(imported)
        if LAYER_OF[there] >= LAYER_OF[part]
    ]


def test_each_part_of_a_layer_exists():
    modules = {module_name(path) for path in FILES}
    assert not [part for part in LAYER_OF if f"weft.{part}" not in modules]


def table_of_layers() -> str:
    """The layers as a table of Markdown, for docs/design.md."""
    rows = [
        f"| {at} | {', '.join(f'`{part}`' for part in parts.split())} | {purpose} |"
        for at, (purpose, parts) in enumerate(LAYERS)
    ]
    return "\n".join(["| layer | parts | what it holds |", "|---|---|---|", *rows])


def test_the_design_shows_the_layers():
    assert table_of_layers() in DESIGN.read_text(encoding="utf-8"), f"docs/design.md should have\n{table_of_layers()}"


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
    graph = {name: imported_modules(path, files.keys()) for name, path in files.items()}  # for type checkers, too
    assert not circles(graph)


def test_imports_stand_on_top():
    assert not [
        f"{name_of(path)}:{inner.lineno}"
        for path in BOUND
        if any(statement.col_offset for statement in import_statements(path))  # those within a function are indented
        for function in ast.walk(on_top(parsed(path)))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(function)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]


def test_only_public_jax_is_used():
    assert not [name_of(path) for path in FILES if "jax._src" in path.read_text(encoding="utf-8")]


def test_files_are_short():
    lists = {"_import_paths/table.py"}  # a row for each of PyTorch's modules
    long = [path for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) >= MOST_LINES]
    assert not {name_of(path) for path in long} - lists


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


if __name__ == "__main__":
    for part, imported in sorted(graph_of_parts().items(), key=lambda entry: LAYER_OF[entry[0]]):
        print(f"{LAYER_OF[part]:2} {part}: {', '.join(sorted(imported, key=lambda there: -LAYER_OF[there]))}")


# --- tests ---


def test_the_long_tests_are_there():
    """A name in `tests/soaked.txt` that no test has any more would leave that test in the default run."""
    tests = Path(__file__).parent
    names = [line for line in (tests / "soaked.txt").read_text().splitlines() if not line.startswith("#")]
    for name in names:
        path, _, function = name.partition("::")
        assert f"def {function.partition('[')[0]}(" in (tests / path).read_text(encoding="utf-8"), name
