"""Under which path PyTorch has what stands in a module of this package: pickles name classes and functions by these."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import takewhile
from typing import Any

from weft._base.exports import origin_of
from weft._import_paths.finder import names_of
from weft._import_paths.table import TABLE

_ROOT = "weft"
_C10D = "weft.distributed.distributed_c10d"
_SHOWN_IN = {
    "weft._base.handles": ("weft.utils.hooks",),
    "weft._checkpoint.former_names": ("weft.serialization",),
    "weft._checkpoint.options": ("weft.serialization",),
    "weft._checkpoint.packages": ("weft.serialization",),
    "weft._checkpoint.safe": ("weft.serialization",),
    "weft._checkpoint.sources": ("weft.serialization",),
    "weft._comm.stores.file_store": (_C10D,),
    "weft._comm.stores.store": (_C10D,),
    "weft._comm.stores.tcp_store": (_C10D,),
    "weft._devices.streams": (_ROOT, "weft.cuda"),
    "weft._interop.custom": ("weft.library",),
    "weft._interop.libraries": ("weft.library",),
    "weft._interop.opcheck": ("weft.library",),
    "weft._interop.schema": ("weft.library",),
    "weft._tensor.compile.stance": ("weft.compiler",),
    "weft._tensor.generator": ("weft._C",),
    "weft._tensor.gradients": ("weft.autograd",),
    "weft._tensor.node": ("weft.autograd.graph",),
    "weft.autograd._context": ("weft.autograd.function",),
    "weft.backends._sdp": ("weft.nn.attention", "weft.backends.cuda"),
    "weft.distributed._": (_C10D,),
    "weft.distributed.rpc._rref": ("weft.distributed.rpc.api",),
    "weft.distributed.checkpoint._metadata_file": ("weft.distributed.checkpoint.filesystem",),
    "weft.distributions._constraint": ("weft.distributions.constraints",),
    "weft.distributions._divergence": ("weft.distributions.kl",),
    "weft.errors": (
        *(_ROOT, "weft.distributed.checkpoint.api", "weft.distributed.checkpoint", "weft.distributed"),
        *("weft.multiprocessing", "weft.jit"),
    ),
    "weft.fx._codegen": ("weft.fx.graph",),
    "weft.fx._tracer": ("weft.fx._symbolic_trace",),
    "weft.fx._wrapping": ("weft.fx._symbolic_trace",),
    "weft.hub._bar": ("weft.hub",),
    "weft.hub._weights": ("weft.hub",),
    "weft.nn.attention._block_mask": ("weft.nn.attention.flex_attention",),
    "weft.profiler._block": ("weft.autograd.profiler",),
    "weft.utils._selective": ("weft.utils.checkpoint",),
}
"""Public modules that show what other modules hold, the preferred one first. `a._` stands for each `a._x` itself."""
_THROUGH = {_C10D: "weft.distributed"}
"""Modules that show all that another one exports."""
_OWN_MODULES = ("weft.errors", "weft.ops", "weft.owners", "weft.xla")
"""Public modules that PyTorch does not have."""
_PYTORCHS_PRIVATE = frozenset(
    f"{_ROOT}.{name}"
    for name in (
        *("ao.ns._numeric_suite", "ao.ns._numeric_suite_fx", "ao.quantization._correct_bias"),
        *("ao.quantization._equalize", "distributed._composable", "distributed._composable.replicate"),
        *("distributed._functional_collectives", "distributed._mesh_layout", "distributed.algorithms._checkpoint"),
        *("distributed.algorithms._checkpoint.checkpoint_wrapper", "distributed.checkpoint._nested_dict"),
        *("distributed.tensor._dtensor_spec", "distributed.tensor.debug._comm_mode", "fx._compatibility", "fx._pytree"),
        *("fx._symbolic_trace", "jit._freeze", "jit._script", "jit._trace"),
        *(
            "testing._comparison",
            "testing._creation",
            "utils._pytree",
            "utils.data._utils",
            "utils.data._utils.collate",
        ),
        *("_utils", "utils.data._utils.fetch", "utils.data._utils.worker"),
    )
)
"""Modules that PyTorch has, too, under the same name, though a part of it begins with an underscore."""


def home_in_torch(module: str, name: str, *, load: bool = True) -> tuple[str, str]:
    """PyTorch's module and name of what has this name in a module; these if PyTorch or this package has no such thing.

    PyTorch's modules of one class each are entries of the table, its packages that show what private modules hold are
    packages here. The deepest of them is the one where PyTorch defines the object. Without `load`, only modules count
    that have been imported.
    """
    if module.partition(".")[0] != _ROOT:
        return module, name
    first, dot, rest = name.partition(".")
    obj = getattr(sys.modules.get(module), first, None)
    for path, origin, old, public in _candidates(module, first):
        if obj is not None and _entry(origin, old, load=load) is obj:
            return public_path(path), public + dot + rest
    return module, name


def public_path(module: str) -> str:
    """A module's name with `torch` for its first word."""
    return "torch" + module.removeprefix(_ROOT)


def is_public(module: str) -> bool:
    """Whether PyTorch may have a module of this name, too."""
    if module in _PYTORCHS_PRIVATE:
        return True
    return not any(part.startswith("_") for part in module.split(".")) and not _is_own(module)


def _is_own(module: str) -> bool:
    return any(module == own or module.startswith(f"{own}.") for own in _OWN_MODULES)


def shows(module: str) -> list[str]:
    """The modules some of whose names a public module shows: those of `_SHOWN_IN`."""
    return [holder for holder, public in _SHOWN_IN.items() if module in public]


def is_shown_elsewhere(module: str) -> bool:
    """Whether public modules, which may be loaded later, show some of a module's names: one of `_SHOWN_IN`."""
    return module in _SHOWN_IN


def _candidates(module: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """Where PyTorch may have the name: a path, from which module and name there it is taken, and its name there."""
    if public := _renamed().get((module, name)):
        yield _ROOT, module, name, public
    entries = _index().get(name, {})
    package, _, last = module.rpartition(".")
    if is_public(module):
        homes = [path for path in entries if path.rpartition(".")[0] == package and is_public(path)]
        homes.append(module)
        homes.sort(key=lambda path: path.endswith(f".{name.lower()}"), reverse=True)  # others import it from there
    else:
        parents = module.split(".")
        packages = (".".join(parents[:count]) for count in range(len(parents) - 1, 0, -1))
        homes = [*entries, *filter(is_public, packages)]
        homes.sort(
            key=lambda path: (
                is_public(path),
                path.count("."),
                path.endswith(f".{name.lower()}"),
                _shared(path, module),
            ),
            reverse=True,
        )
        preferred = _SHOWN_IN.get(module) or (_SHOWN_IN.get(f"{package}._", ()) if last.startswith("_") else ())
        homes = [*preferred, *homes]
    for path in homes:
        origin, new = entries.get(path, (_THROUGH.get(path, path), name))
        yield path, origin, name, new
        yield path, origin, f"_{name}", f"_{name}"  # what is private there has one here


def _entry(module: str, name: str, *, load: bool) -> Any:
    """What a module shows under a name; without `load`, None if that, or the module, is not imported yet."""
    if load:
        return getattr(import_module(module), name, None)
    while module in sys.modules:
        names = vars(sys.modules[module])
        if name in names:
            return names[name]
        module, name = origin_of(module, name)
    return None


def _shared(path: str, other: str) -> int:
    """How many parts two paths have in common at their start."""
    parts = zip(path.split("."), other.split("."), strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], parts)])


@cache
def _renamed() -> dict[tuple[str, str], str]:
    """The names that the package gives to what has another one in its module: `AcceleratorError`, `from_numpy`."""
    locations = import_module("weft._api").LOCATIONS
    return {place: name for name, place in locations.items() if place[1] not in locations and place[0] != "math"}


@cache
def _index() -> dict[str, dict[str, tuple[str, str]]]:
    """By name: the table's modules that have what is called so, each with the module from which, and its name there."""
    entries: dict[str, dict[str, tuple[str, str]]] = {}
    for path in TABLE:
        for new, (origin, old) in names_of(f"{_ROOT}.{path}")[0].items():
            if new == old or f"{_ROOT}.{path}" not in entries.get(old, {}):
                entries.setdefault(old, {})[f"{_ROOT}.{path}"] = origin, new
    return entries
