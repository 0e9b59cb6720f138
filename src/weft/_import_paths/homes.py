"""Under which path PyTorch has what stands in a module of this package: pickles name classes and functions by these."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from itertools import takewhile

from weft._import_paths.finder import names_of
from weft._import_paths.table import TABLE

_ROOT = "weft"
_SHOWN_IN = {
    "weft._base.handles": ("weft.utils.hooks",),
    "weft.backends._sdp": ("weft.nn.attention",),
    "weft.distributed.checkpoint._metadata_file": ("weft.distributed.checkpoint.filesystem",),
    "weft.distributions._constraint": ("weft.distributions.constraints",),
}
"""Public modules that show what private modules of other folders hold."""


def home_in_torch(module: str, name: str) -> tuple[str, str]:
    """PyTorch's module and name of what has this name in a module; these if PyTorch or this package has no such thing.

    PyTorch's modules of one class each are entries of the table, its packages that show what private modules hold are
    packages here. The deepest of them is the one where PyTorch defines the object.
    """
    own = module.split(".")
    if own[0] != _ROOT:
        return module, name
    first, dot, rest = name.partition(".")
    obj = getattr(sys.modules.get(module), first, None)
    entries = _index().get(first, {})
    if _is_public(own):
        homes = [path for path in entries if path.rpartition(".")[0] == module.rpartition(".")[0]]
        homes.append(module)
    else:
        packages = (".".join(own[:count]) for count in range(len(own) - 1, 0, -1) if _is_public(own[:count]))
        homes = [*entries, *_SHOWN_IN.get(module, ()), *packages]
        homes.sort(key=lambda path: (path.count("."), _shared(path, module)), reverse=True)
    for path in homes:
        origin, new = entries.get(path, (path, first))
        for old, public in ((first, new), (f"_{first}", f"_{first}")):  # what is private there has one here
            if obj is not None and getattr(import_module(origin), old, None) is obj:
                return "torch" + path.removeprefix(_ROOT), public + dot + rest
    return module, name


def _is_public(path: list[str]) -> bool:
    return not any(part.startswith("_") for part in path)


def _shared(path: str, other: str) -> int:
    """How many parts two paths have in common at their start."""
    parts = zip(path.split("."), other.split("."), strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], parts)])


@cache
def _index() -> dict[str, dict[str, tuple[str, str]]]:
    """By name: the table's modules that have what is called so, each with the module from which, and its name there."""
    entries: dict[str, dict[str, tuple[str, str]]] = {}
    for path in TABLE:
        for new, (origin, old) in names_of(f"{_ROOT}.{path}")[0].items():
            if new == old or f"{_ROOT}.{path}" not in entries.get(old, {}):
                entries.setdefault(old, {})[f"{_ROOT}.{path}"] = origin, new
    return entries
