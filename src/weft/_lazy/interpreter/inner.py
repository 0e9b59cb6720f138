"""The inner loops of NumPy's functions: which of them one runs follows from the types of its operands."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft._base.types import Arg
from weft._lazy.interpreter.table import Opaque
from weft._lazy.native import native

_NUMBERS = (bool, int, float, complex)


def kind_of(x: Arg) -> object:
    """What an operand's type says in promotion: a dtype, or the type of a Python number."""
    if type(x) in _NUMBERS:
        return type(x)  # pyright: ignore[reportUnknownVariableType]
    kind: object = getattr(x, "dtype", None)
    if kind is None:
        raise Opaque(type(x).__name__)
    return kind


@lru_cache(maxsize=4096)  # key: ufunc, types of the operands
def _resolved(ufunc: np.ufunc, kinds: tuple[Arg, ...]) -> tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]] | None:
    if getattr(np, ufunc.__name__, None) is not ufunc or ufunc.signature is not None:
        return None
    if ufunc is np.power and any(getattr(kind, "kind", "") in "iu" for kind in kinds):
        return None  # its loop may raise
    if bool in kinds:
        kinds = tuple([np.dtype(bool) if kind is bool else kind for kind in kinds])
    assert native is not None, "nothing is traced without the extension"
    types = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
    return (types[: ufunc.nin], types[ufunc.nin :]) if native.has_loop(ufunc, types) else None


def resolved(ufunc: np.ufunc, kinds: tuple[Arg, ...]) -> tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]]:
    """The types of a ufunc's loop for these operands, and of its results; refused if there is no such loop."""
    types = _resolved(ufunc, kinds)
    if types is None:
        raise Opaque(ufunc.__name__)
    return types
