"""Generated source as functions, and the imports that it needs when it is kept in files."""

from __future__ import annotations

import importlib
import itertools
import linecache
import re
import weakref
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any, cast

from weft._base.torch_alias import own_name
from weft.errors import PicklingError
from weft.fx._codegen import BUILTINS
from weft.fx._paths import attribute_at, has_attribute_at
from weft.fx._wrapping import forget_with

_numbers = itertools.count()


def function_from(source: str, names: Mapping[str, object], origin: str = "") -> FunctionType:
    """The function `forward` of a source. Tracebacks show its lines for as long as it exists, and `origin`."""
    scope = dict(names)
    file = f"<eval_with_key>.{next(_numbers)}{origin}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), scope)  # annotations are types, not texts
    function = cast("FunctionType", scope.pop("forward"))
    weakref.finalize(function, linecache.cache.pop, file, None)
    forget_with(function)
    return function


def import_block(names: Mapping[str, object]) -> str:
    """Import statements that give a source its globals, under PyTorch's names for the modules of this package."""
    return "".join([f"{_import_statement(name, obj)}\n" for name, obj in names.items()])


def _import_statement(name: str, obj: object) -> str:
    if isinstance(obj, ModuleType):
        path = re.sub(r"^weft\b", "torch", obj.__name__)
        return f"import {path}" if name == path else f"import {path} as {name}"
    if name in BUILTINS:
        return {"inf": "from math import inf", "nan": "from math import nan", "NoneType": "NoneType = type(None)",
                "device": "from torch import device"}[name]  # fmt: skip
    module = getattr(obj, "__module__", None)
    path = getattr(obj, "__qualname__", getattr(obj, "__name__", ""))
    home: Any = importlib.import_module(module) if module else None
    if module is None or not has_attribute_at(home, path) or attribute_at(home, path) is not obj:
        raise PicklingError(
            f"{obj!r} cannot be saved with its graph, because no import finds it: {module}.{path} is something else. "
            "Define it at the top level of a module"
        )
    if "." in path:
        return f"import {module}; {name} = {module}.{path}"
    module = re.sub(r"^weft\b", "torch", module)
    return f"from {module} import {path}" if name == path else f"from {module} import {path} as {name}"


_STATEMENT = re.compile(
    r"import (?P<module>[\w.]+)(?: as (?P<alias>\w+))?"
    r"|from (?P<source>[\w.]+) import (?P<member>\w+)(?: as (?P<name>\w+))?"
    r"|import (?P<path>[\w.]+); (?P<own>\w+) = (?P<dotted>[\w.]+)"
)


def imported(block: str) -> dict[str, object]:
    """What the statements of `import_block`, or of PyTorch's files, import. No code is run but that of the modules."""
    names = dict(BUILTINS)
    for line in filter(None, map(str.strip, block.splitlines())):
        match = _STATEMENT.fullmatch(line)
        if match is None:
            continue  # `NoneType = type(None)` and the like, which all code has
        if match["module"]:
            module = importlib.import_module(own_name(match["module"]))
            alias = match["alias"] or match["module"].partition(".")[0]
            names[alias] = module if match["alias"] else importlib.import_module(own_name(alias))
        elif match["source"]:
            module = importlib.import_module(own_name(match["source"]))
            names[match["name"] or match["member"]] = getattr(module, match["member"])
        else:
            path = match["dotted"].removeprefix(f"{match['path']}.")
            names[match["own"]] = attribute_at(importlib.import_module(match["path"]), path)
    return names
