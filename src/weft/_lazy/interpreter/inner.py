"""The inner loops of NumPy's functions: which of them one runs follows from the types of its operands."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft._base.types import Arg
from weft._lazy.interpreter.steps import extension
from weft._lazy.interpreter.table import Opaque

NUMBERS = (bool, int, float, complex)


def kind_of(x: Arg) -> object:
    """What an operand's type says in promotion: a dtype, or the type of a Python number."""
    if type(x) in NUMBERS:
        return type(x)  # pyright: ignore[reportUnknownVariableType]
    kind: object = getattr(x, "dtype", None)
    if kind is None:
        raise Opaque(type(x).__name__)
    return kind


@lru_cache(maxsize=4096)  # key: ufunc, types of the operands
def resolved(ufunc: np.ufunc, kinds: tuple[Arg, ...]) -> tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]] | None:
    """The types of a ufunc's loop for these operands, and of its results; None if there is no such loop."""
    if ufunc.signature is not None or ufunc not in [
        getattr(library, ufunc.__name__, None) for library in (np, extension())
    ]:
        return None
    if ufunc is np.power and any(getattr(kind, "kind", "") in "iu" for kind in kinds):
        return None  # its loop may raise
    if bool in kinds:
        kinds = tuple([np.dtype(bool) if kind is bool else kind for kind in kinds])
    types = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
    return (types[: ufunc.nin], types[ufunc.nin :]) if extension().has_loop(ufunc, types) else None
