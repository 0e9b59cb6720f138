"""The rows of the operator table as signatures: each sample in every element type that its row takes.

Run as a module, it lists the primitives that they are made of, and those that the interpreter lacks.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from tests.samples import Sample, sample_of
from weft._autograd.derive import derivative_of
from weft._base.dtype import COMPLEX, FLOAT, INTEGER, DTYPES, DType, complex128, float64, from_numpy, int64
from weft._lazy import runtime as runtime  # sets jax up as programs expect it
from weft._lazy.infer import ONE, Exact, call_of, many, signature_of
from weft._lazy.signature import Signature
from weft._lazy.value import aval_of
from weft.ops._table import REQUIRED, TABLE, TENSOR_KINDS, Kind, OpDef, Param

KEY = (np.int64(7), np.int64(3))
"""The seed and the number of a draw."""


@lru_cache
def samples() -> dict[str, Sample]:
    """The sample of each row that has one."""
    return {name: sample for name, op in TABLE.items() if op.dims and (sample := sample_of(op))}


def cases(sample: Sample) -> Iterator[tuple[str, Signature, list[np.ndarray]]]:
    """(name, signature, arrays) of a sample in its own types and in all others that its row takes, each once."""
    seen: set[Any] = set()
    for dtype in (None, *DTYPES):
        taken = _case(sample, dtype)
        if taken is not None and taken[0] not in seen:
            seen.add(taken[0])
            yield f"{sample.op.name}-{dtype.name if dtype else 'sample'}", *taken


def derivatives(signature: Signature) -> Iterator[Signature]:
    """The signatures of its derivative: of each output with respect to everything that has one."""
    need = tuple(i for i, a in enumerate(signature.avals) if a.dtype.is_differentiable and not a.weak)
    for at, output in enumerate(signature.outputs[: signature.main]):
        if output.taped is not None and need:
            derived = derivative_of(signature, need, (at,)).signature
            if derived is not None:
                yield derived


def _case(sample: Sample, dtype: DType | None) -> tuple[Signature, list[np.ndarray]] | None:
    static, arrays, avals = [], [], []
    pending = list(sample.arrays)
    for param in sample.op.params:
        entry, taken = _entry(param, sample.static[param.name], pending)
        static.append(entry)
        for array, weak in taken:
            array = array if weak or param.kind is Kind.KEY else _cast(array, dtype)
            arrays.append(array)
            avals.append(aval_of(array.shape, from_numpy(array.dtype), weak=weak))
    try:
        with warnings.catch_warnings(action="ignore"):
            return signature_of(call_of(sample.op, tuple(static)), tuple(avals)), arrays
    except Exception:  # the row refuses this type, in whatever way
        if dtype is None and not any(p.kind is Kind.DTYPE for p in sample.op.params):
            raise
        return None


def _entry(param: Param, value: Any, pending: list[Any]) -> tuple[Any, list[tuple[np.ndarray, bool]]]:
    """A call's entry for a parameter, with the inputs that it takes and whether each is a number."""
    if param.kind is Kind.KEY:
        return many(2), [(np.asarray(k), True) for k in KEY]
    if param.kind in TENSOR_KINDS and value is not None:
        count = abs(value)
        taken = [(np.asarray(pending.pop(0)), False) for _ in range(count)]
        return (many(count) if value < 0 else ONE), taken
    if param.kind is Kind.SCALAR and value is not None and value is not param.default:
        number = np.asarray(value)
        wide = {"f": np.float64, "c": np.complex128}.get(number.dtype.kind, np.int64)
        return ONE, [(number.astype(wide), True)]
    return (Exact(value) if param.text == "int | float" else value), []


def _cast(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Floating and complex arrays in the type; whole numbers too, if the type is for those."""
    if dtype is None:
        return array
    kind = {"f": FLOAT, "c": COMPLEX, "V": FLOAT}.get(array.dtype.kind, INTEGER)
    if (kind >= FLOAT) is not (dtype.category >= FLOAT):
        return array
    return array.astype(dtype.numpy)
