"""NumPy's names of parameters, `axis` and `keepdims`, which PyTorch accepts as keywords beside its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from weft._base.types import Arg
from weft.errors import ArgumentError
from weft.ops._kinds import REQUIRED, Kind, Param
from weft.ops._table import OpDef

_NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}
WITH_NUMPY_NAMES = ("", "fft", "linalg", "special")
"""The modules whose composites accept them."""


def numpy_names_of(params: Iterable[Param | inspect.Parameter]) -> dict[str, str]:
    """NumPy's names of optional parameters, by PyTorch's names."""
    optional = {p.name for p in params if p.default is not REQUIRED and p.default is not inspect.Parameter.empty}
    return {name: theirs for name, theirs in _NUMPY_NAMES.items() if name in optional}


def with_axis(op: OpDef, name: str, parts: list[str], lines: list[str]) -> list[str]:
    """A signature's parts with `axis`, if `dim` is required and nothing after it; `lines` then begin by choosing."""
    required = [p for p in op.params if p.default is REQUIRED and p.kind is not Kind.KEY]
    if not required or required[-1].name != "dim" or required[-1].keyword_only or op.public.older:
        return parts
    lines.insert(0, f"if dim is _required or axis is not None: dim, axis = _one_of({name!r}, dim, axis), None")
    parts = ["dim=_required" if part == "dim" else part for part in parts]
    return [*parts, "axis=None"] if "*" in parts else [*parts, "*", "axis=None"]


def one_of(name: str, dim: object, axis: object) -> Arg:
    """A required `dim` that is given by one of its two names."""
    if axis is None:
        raise ArgumentError(f"{name}() missing 1 required positional argument: 'dim'")
    if dim is not REQUIRED:
        raise ArgumentError(f"{name}() got an unexpected keyword argument 'axis'")
    return axis
