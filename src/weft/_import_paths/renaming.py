"""PyTorch's names for the modules, classes and functions of this package, in a process in which `torch` is Weft.

Libraries look at the `__module__` of a class, at the `__name__` of a module, and into `sys.modules` under either. So
each module gets PyTorch's names when it has been loaded: its own, if PyTorch has such a module, and those of the
classes and functions that are defined in it and that PyTorch has (`homes.py`). What only Weft has keeps its name.

Nothing of this is imported, and no import takes longer, in a process in which `torch` is not Weft.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, ForwardRef

from weft._base.own_names import own_paths
from weft._import_paths.finder import TableLoader, names_of
from weft._import_paths.homes import home_in_torch, is_public, is_shown_elsewhere, public_path, shows

_ROOT = "weft"
_OPERATORS = "weft._tensor.assemble"
"""The module that makes the public functions, and holds them until they are asked for."""


def use_names_of_torch() -> None:
    """Rename what is loaded, and from now on each module when it has been loaded."""
    sys.meta_path.insert(0, _Finder())
    with _Loading():
        _loading.waiting += [module for name, module in sys.modules.items() if name.partition(".")[0] == _ROOT]


class _Finder:
    """Finds this package's modules as Python does, and lets them be renamed when they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("weft."):
            return None
        spec: Any = PathFinder.find_spec(fullname, path, target)
        loader = spec and spec.loader
        if type(loader) is SourceFileLoader:
            spec.loader = _SourceLoader(loader.name, loader.path)
        elif type(loader) is TableLoader:
            spec.loader = _TableLoader()
        return spec


class _Renaming:
    """The part of a loader whose modules are renamed when they are loaded."""

    def exec_module(self, module: ModuleType) -> None:
        other_name = public_path(module.__name__)
        sys.modules[other_name] = module  # at once: `import a.b as c` looks for `b` under the name that `a` has
        with _Loading():
            try:
                super().exec_module(module)  # pyright: ignore[reportAttributeAccessIssue]
            except BaseException:
                del sys.modules[other_name]
                raise
            _loading.waiting.append(module)


class _SourceLoader(_Renaming, SourceFileLoader):
    pass


class _TableLoader(_Renaming, TableLoader):
    pass


class _State(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.waiting: list[ModuleType] = []


# no cell: modules are loaded once
_loading = _State()


class _Loading:
    """While a module is loaded. When the outermost one is, all are renamed: only then each shows what it exports."""

    def __enter__(self) -> None:
        _loading.depth += 1

    def __exit__(self, *_: object) -> None:
        try:
            while _loading.depth == 1 and _loading.waiting:
                _rename(_loading.waiting.pop(0))
        finally:
            _loading.depth -= 1


# no cell: modules are loaded once
_shown_elsewhere: dict[str, list[Any]] = {}
"""What stands in modules that others show, which may be loaded later, by the former."""


def _rename(module: ModuleType) -> None:
    """Give a module, and what is defined in it, PyTorch's names; also what it shows of modules loaded before."""
    name = module.__spec__.name if module.__spec__ else module.__name__
    sys.modules.setdefault(public_path(name), module)
    _rename_objects(name, module)
    for holder in shows(name):
        for obj in _shown_elsewhere.get(holder, ()):
            _set_home(obj, holder)
    if is_public(name) or isinstance(module.__spec__ and module.__spec__.loader, TableLoader):
        module.__name__ = public_path(name)


def _rename_objects(name: str, module: ModuleType) -> None:
    objects = [*vars(module).values()]
    if name == _OPERATORS:
        objects += chain.from_iterable(functions.values() for functions in vars(module)["PUBLIC"].values())
    for obj in objects:
        if not isinstance(obj, (type, FunctionType)):
            continue
        home = obj.__module__
        if home == name:
            if is_shown_elsewhere(name):
                _shown_elsewhere.setdefault(name, []).append(obj)
            _set_home(obj, name)
        elif home and home.partition(".")[0] == _ROOT and is_public(home):  # set where it was made
            obj.__module__ = public_path(home)


def _set_home(obj: Any, holder: str) -> None:
    """Give an object of a module the names that PyTorch has for it, as far as the modules are loaded that show it."""
    module, qualname = home_in_torch(holder, obj.__qualname__, load=False)
    if module in (obj.__module__, holder):
        return
    if module not in sys.modules:
        import_module(module)  # which is where `pickle` and others look for the object
    if isinstance(obj, type):
        _keep_annotations(obj)
        if next(iter(names_of(_ROOT + module.removeprefix("torch"))[0]), None) == qualname:
            sys.modules[module].__file__ = sys.modules[holder].__file__  # where `inspect` looks for the class
    own_paths[module, qualname] = holder, obj.__qualname__
    obj.__module__ = module
    if qualname != obj.__qualname__:
        obj.__qualname__, obj.__name__ = qualname, qualname.rpartition(".")[2]


def _keep_annotations(kind: type) -> None:
    """Let the annotations of a class be evaluated with the names of the module in which they are written."""
    annotations = vars(kind).get("__annotations__", {})
    for name, annotation in annotations.items():
        if isinstance(annotation, str):
            annotations[name] = ForwardRef(annotation, module=kind.__module__, is_class=True)
