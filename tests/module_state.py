"""Finds the state of modules: what functions change after import.

This reads the sources, as does the test of layers: what a function would change in another process cannot be seen from
what it has changed in this one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import weft
from weft._base.collector import collector_paused

ROOT = Path(weft.__file__).parent
OUT_OF_REACH = (
    "_base/flight",  # reports for people, and processes that are started, stopped and watched
    "_base/activity.py",
    "_base/program.py",
    "_base/temporary.py",
    "_base/torch_alias.py",
    "_comm/",
    "_tools/",
    "cuda/nvtx.py",
    "distributed/elastic/",
    "distributed/rpc/",
    "hub/",
    "multiprocessing/",
    "profiler/",
    "utils/bottleneck/",
    "utils/tensorboard/",
    "utils/data/",
    "xla/distributed/",
)
"""Files of tools and commands, and of what is never replayed: input, output and calls of other processes."""

CELLS = {"Cell", "LocalCell", "DerivedCell", "Registry"}
MARK = "# no cell: "
EMPTY = {"dict", "list", "set", "OrderedDict", "defaultdict", "deque", "Counter", "WeakSet", "WeakKeyDictionary"}
EMPTY |= {"WeakValueDictionary", "ContextVar", "local"}
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"}
CHANGES |= {"popleft", "remove", "reset", "set", "setdefault", "update"}
CONSTRUCTORS = {"__init__", "__new__", "__post_init__", "__setstate__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Source:
    """A file: what stands at its top, by name, and where names that it imports come from."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.defined: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        for node in ast.walk(ast.Module([s for s in self.tree.body if not isinstance(s, ast.ClassDef)], [])):
            if isinstance(node, ast.ImportFrom):
                self.imported |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.defined |= {t.id: node for t in targets if isinstance(t, ast.Name)}

    def is_marked(self, node: ast.stmt) -> bool:
        """Whether the definition, or the line above it, says why it needs no cell."""
        last = node.lineno if isinstance(node, ast.ClassDef) else node.end_lineno
        return any(MARK in line for line in self.lines[max(node.lineno - 2, 0) : last])


def texts() -> Iterator[tuple[str, str]]:
    """The names of the package's modules, and their texts."""
    for path in ROOT.rglob("*.py"):
        name = ".".join(("weft", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        yield name, path.read_text(encoding="utf-8")


@cache
def sources() -> dict[str, Source]:
    """The files of the package, by module."""
    with collector_paused:  # it would go through the trees again and again
        return {name: Source(text) for name, text in texts()}


class State(NamedTuple):
    """Something of a module that changes after import."""

    module: str
    name: str


def is_mutable(value: ast.expr | None, source: Source, files: dict[str, Source]) -> bool:
    """Whether an expression makes an empty container, or one of such, or an object whose methods change it."""
    if isinstance(value, ast.Dict):
        return not value.keys or any(is_mutable(part, source, files) for part in value.values)
    if isinstance(value, ast.List | ast.Tuple):
        is_empty = isinstance(value, ast.List) and not value.elts
        return is_empty or any(is_mutable(part, source, files) for part in value.elts)
    if isinstance(value, ast.DictComp):
        return is_mutable(value.value, source, files)
    if not isinstance(value, ast.Call):
        return False
    name = called(value)
    return (name in EMPTY and not value.args) or name == "ContextVar" or changes_itself(name, source, files)


def called(node: ast.Call) -> str:
    function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def changes_itself(name: str, source: Source, files: dict[str, Source]) -> bool:
    """Whether methods of a class of this package change its objects."""
    if name in source.imported:
        module, name = source.imported[name]
        source = files.get(module, source)
    kind = source.defined.get(name)
    if not isinstance(kind, ast.ClassDef):
        return False
    if any("local" in (getattr(b, "attr", ""), getattr(b, "id", "")) for b in kind.bases):
        return True
    if any(isinstance(d, ast.Name) and d.id == "dataclass" for d in kind.decorator_list):
        return True
    return any(
        base == "self"
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and method.name not in CONSTRUCTORS
        for base in changed_in(method)
    )


def changed_in(function: ast.AST) -> Iterator[str]:
    """The names whose objects a function changes, by assignment or by a method, and those that it rebinds."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield root_of(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            yield root_of(node.func.value)


def root_of(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return getattr(node, "id", "")


def local_names(function: Function) -> set[str]:
    nodes = list(ast.walk(function))
    shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return ({node.arg for node in nodes if isinstance(node, ast.arg)} | stored) - shared


def state_of(module: str, files: dict[str, Source]) -> set[State]:
    """What a module holds, or changes in other modules, that functions change after import."""
    source = files[module]
    found = {
        State(module, name)
        for name, node in source.defined.items()
        if not name.startswith("__")
        and isinstance(node, ast.Assign | ast.AnnAssign)
        and is_mutable(node.value, source, files)
    }
    for function in ast.walk(source.tree):
        if isinstance(function, Function):
            changed = {name for name in changed_in(function) if name in source.defined or name in source.imported}
            for name in changed - local_names(function) if changed else ():
                found.add(State(module, name) if name in source.defined else State(*source.imported[name]))
    return {state for state in found if state.module in files and state.name in files[state.module].defined}


def is_reached(module: str) -> bool:
    path = module.removeprefix("weft.").replace(".", "/")
    return not any(path.startswith(out.removesuffix(".py").removesuffix("/")) for out in OUT_OF_REACH)


def untracked(files: dict[str, Source]) -> list[str]:
    """The state that stands in no cell and does not say why."""
    found = set().union(*(state_of(module, files) for module in files))
    return sorted(
        f"{state.module}.{state.name}"
        for state in found
        if is_reached(state.module)
        and not is_cell(node := files[state.module].defined[state.name])
        and not files[state.module].is_marked(node)
    )


def is_cell(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and any(isinstance(part, ast.Call) and called(part) in CELLS for part in ast.walk(node.value))
    )
