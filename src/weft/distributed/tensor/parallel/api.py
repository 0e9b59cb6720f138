"""Plans: which modules are distributed in which style."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch

from weft._base.usage import log_api_usage_once
from weft.distributed.device_mesh import DeviceMesh, active_mesh
from weft.distributed.tensor.parallel.style import ParallelStyle
from weft.errors import ArgumentError, ValueRangeError
from weft.nn import Module


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Distribute a module over a mesh of one dim, in place: in one style, or its submodules as a plan says.

    A plan has styles by the names of submodules, such as "layers.*.up". Parameters become those of the rank
    `src_data_rank`; with None, each rank takes its own.
    """
    log_api_usage_once("torch.distributed.tensor.parallel.parallelize_module")
    mesh = active_mesh(device_mesh)
    if mesh.ndim != 1:
        raise ValueRangeError(
            f"parallelize_module takes a mesh of one dim, but got one with {mesh.ndim}; slice it, as mesh['tp']"
        )
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan.apply(module, mesh, src_data_rank)
    _require_plan(parallelize_plan)
    for name, style in parallelize_plan.items():
        _require_style(name, style)
        matching = list(_submodules(module, name.split(".") if name else []))
        if not matching:
            warnings.warn(f"parallelize_plan: no submodule is called {name!r}, so nothing is done", stacklevel=2)
        for submodule in matching:
            style.apply(submodule, mesh, src_data_rank)
    return module


def _require_plan(plan: object) -> None:
    if not isinstance(plan, Mapping):
        raise ArgumentError(
            f"parallelize_plan must be a ParallelStyle, or a dict of them by names, but got {type(plan).__name__}"
        )


def _require_style(name: str, style: object) -> None:
    if not isinstance(style, ParallelStyle):
        raise ArgumentError(f"parallelize_plan[{name!r}] must be a style, such as ColwiseParallel(), got {style!r}")


def _submodules(module: Module, pattern: list[str]) -> Iterator[Module]:
    """The submodules whose path of names matches a path of patterns."""
    if not pattern:
        yield module
        return
    for name, child in module.named_children():
        if fnmatch(name, pattern[0]):
            yield from _submodules(child, pattern[1:])
