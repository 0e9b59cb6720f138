"""`weft.export.draft_export`: an export for as many sizes as possible, with a report of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft._base.guards import is_list_or_tuple, is_mapping
from weft._base.site import warn_user
from weft._base.types import Args, Kwargs, PyTree
from weft.errors import ProgramError
from weft.export._dims import Dim
from weft.export._export import export
from weft.export._program import ExportedProgram
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.export._dims import DynamicShapes


def draft_export(
    mod: Module | Callable[..., object],
    args: Args,
    kwargs: Kwargs | None = None,
    *,
    dynamic_shapes: DynamicShapes = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """`export`; if that fails for the sizes in `dynamic_shapes`, export again with `Dim.AUTO` for each of them.

    The program's `report` says why, which is also a warning; it is empty if there was nothing to change. A function
    that reads values is refused, as by `export`.
    """
    del preserve_module_call_signature, strict, prefer_deferred_runtime_asserts_over_guards
    try:
        return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes)
    except ProgramError as error:
        if dynamic_shapes is None:
            raise
        report = str(error)
    program = export(mod, args, kwargs, dynamic_shapes=_automatic(dynamic_shapes))
    sizes = ", ".join(program.range_constraints) or "none"
    program.report = f"{report}. Exported with these dims of other names that may change instead: {sizes}"
    warn_user(program.report)
    return program


def _automatic(spec: PyTree) -> PyTree:
    """The specification with `Dim.AUTO` for each dim that shall change."""
    if is_mapping(spec):
        return {key: _automatic(part) for key, part in spec.items()}
    if is_list_or_tuple(spec):
        return [_automatic(part) for part in spec]
    return Dim.AUTO if isinstance(spec, Dim) or spec is Dim.DYNAMIC else spec
