"""Reductions of the arrays of several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from weft.errors import DTypeError

Array = np.ndarray

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "premul_sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
REDUCTIONS = tuple(_UFUNCS)
_ROUNDS = {np.add, np.multiply}  # computed in float32 for 16-bit floats
_BLOCK = 1 << 16  # elements of the float32 accumulator, so that it fits into the cache


@lru_cache(maxsize=256)  # key: reduction, element type
def check_reduction(name: str, dtype: np.dtype) -> None:
    """Raise `DTypeError` if the reduction is not defined for the element type."""
    if name not in _UFUNCS:
        raise DTypeError(f"unknown reduction {name!r}; there are {', '.join(REDUCTIONS)}")
    bits = name in {"band", "bor", "bxor"}
    if (bits and dtype.kind not in "iub") or (name in {"min", "max"} and dtype.kind == "c"):
        raise DTypeError(f"reduction {name!r} is not defined for {dtype.name}")


def combine(name: str, parts: Sequence[Array], out: Array) -> None:
    """Reduce `parts`, in their order, into `out`, which may be the first part but overlap no other.

    Floats of 16 bits and less are added and multiplied in float32, and rounded once.
    """
    ufunc = _UFUNCS[name]
    dtype = out.dtype
    if dtype.kind in "iub":
        _fold(ufunc, parts, out)
        if name == "avg":
            _divide_whole(out, len(parts))
        return
    if dtype.itemsize <= 2 and ufunc in _ROUNDS:
        _fold_short(ufunc, parts, out, name == "avg")
        return
    _fold(ufunc, parts, out)
    if name == "avg":
        np.divide(out, len(parts), out=out)


def premultiplied(array: Array, factor: float | Array) -> Array:
    """A rank's contribution to the reduction `premul_sum`, in the element type of `array`."""
    with np.errstate(all="ignore"):
        return np.multiply(array, factor).astype(array.dtype)


def _fold(ufunc: np.ufunc, parts: Sequence[Array], out: Array) -> None:
    if len(parts) == 1:
        out[...] = parts[0]
        return
    ufunc(parts[0], parts[1], out=out)
    for part in parts[2:]:
        ufunc(out, part, out=out)


def _fold_short(ufunc: np.ufunc, parts: Sequence[Array], out: Array, average: bool) -> None:
    wide = np.empty(min(_BLOCK, out.size), np.float32)
    for at in range(0, out.size, _BLOCK):
        block = slice(at, at + _BLOCK)
        total = wide[: out[block].size]
        total[...] = parts[0][block]
        for part in parts[1:]:
            ufunc(total, part[block], out=total, dtype=np.float32)
        if average:
            total /= len(parts)
        out[block] = total


def _divide_whole(out: Array, ranks: int) -> None:
    """Divide integers, rounding towards zero."""
    if out.dtype.kind != "b":
        out[...] = (out - np.fmod(out, ranks)) // ranks
