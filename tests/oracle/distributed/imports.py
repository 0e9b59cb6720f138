"""Imports of `torch` give Weft, but for the tests that PyTorch's wheel carries, whose sources are read there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import weft
from tests.oracle.distributed import stand_ins

_TESTS = "torch.testing._internal"
_STAND_INS = {
    f"{_TESTS}.common_utils": stand_ins,
    f"{_TESTS}.common_distributed": stand_ins,
}


class Absent:
    """Stands for what Weft does not have, until it is called; as a decorator it leaves functions as they are."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isfunction(args[0]) and not kwargs:
            return args[0]
        raise NotImplementedError(f"Weft has no {self._name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")


def taken(module: str, name: str) -> Any:
    """What `from module import name` gives, or an `Absent`."""
    try:
        parent = importlib.import_module(module)
    except ImportError:
        return Absent(f"{module}.{name}")
    try:
        return getattr(parent, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module}.{name}")
        except ImportError:
            return Absent(f"{module}.{name}")


def install() -> None:
    """Have imports of `torch` in this process give Weft."""
    weft.jit._builtins = stand_ins.builtins  # pyright: ignore[reportAttributeAccessIssue]
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("PyTorch is not installed; `make oracle-distributed` installs it")
    sys.meta_path.insert(0, _Finder(Path(spec.origin).parent))


class _Finder(MetaPathFinder):
    def __init__(self, wheel: Path) -> None:
        self._wheel = wheel

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            return None
        if not name.startswith(f"{_TESTS}.") or name in _STAND_INS:
            return ModuleSpec(name, _Alias(), is_package=True)
        file = self._wheel.joinpath(*name.split(".")[1:])
        package = (file / "__init__.py").exists()
        file = file / "__init__.py" if package else file.with_suffix(".py")
        if not file.exists():
            return None
        return ModuleSpec(name, _Source(file), origin=str(file), is_package=package)


class _Alias(Loader):
    """Loads a module of Weft, or a stand-in, under PyTorch's name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name in _STAND_INS:
            sys.modules[name] = cast(ModuleType, _STAND_INS[name])
        elif name == _TESTS:
            module.__path__ = []
        elif name == "torch.testing":
            module.__path__ = []
            importlib.import_module("weft").testing = module  # pyright: ignore[reportAttributeAccessIssue]
        else:
            sys.modules[name] = importlib.import_module("weft" + name.removeprefix("torch"))


class _Source(Loader):
    """Loads a file whose imports may name what there is not."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self._file.read_text(encoding="utf-8"))
        tree = ast.fix_missing_locations(_Lenient().visit(tree))
        module.__dict__["_taken"] = taken
        exec(compile(tree, str(self._file), "exec"), module.__dict__)


class _Lenient(ast.NodeTransformer):
    """`from torch… import a as b` becomes `b = _taken("torch…", "a")`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.module is None or node.module.split(".")[0] != "torch":
            return node
        return [_assignment(alias.asname or alias.name, node.module, alias.name) for alias in node.names]

    def visit_Import(self, node: ast.Import) -> Any:
        result: list[ast.stmt] = []
        for alias in node.names:
            module, _, name = alias.name.rpartition(".")
            if module.split(".")[0] == "torch" and alias.asname:
                result.append(_assignment(alias.asname, module, name))
            else:
                result.append(ast.Import([alias]))
        return result


def _assignment(target: str, module: str, name: str) -> ast.stmt:
    call = ast.Call(ast.Name("_taken", ast.Load()), [ast.Constant(module), ast.Constant(name)], [])
    return ast.Assign([ast.Name(target, ast.Store())], call)
