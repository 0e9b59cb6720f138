"""The rows of the operator table as programs: each sample and its derivative, in every type that its row takes.

Run as a module, it says which primitives they are made of, how often, and which of these the interpreter lacks.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from tests._lazy.interpreter.check import numbers
from tests.samples import Sample, as_sample, sample_of
from weft._autograd.derive import derivative_of
from weft._base.dtype import COMPLEX, DTYPES, FLOAT, INTEGER, DType, from_numpy
from weft._lazy import runtime as runtime  # sets jax up as programs expect it
from weft._lazy.aval import aval_of
from weft._lazy.call import ONE, Exact, many
from weft._lazy.infer import call_of, signature_of
from weft._lazy.interpreter import missing, prepare
from weft._lazy.interpreter.flatten import flattened
from weft._lazy.signature import Signature
from weft.errors import WeftError
from weft.ops._kinds import REQUIRED, TENSOR_KINDS, Kind, Param
from weft.ops._table import TABLE, OpDef

_SEED_AND_DRAW = (np.int64(7), np.int64(3))


class Program(NamedTuple):
    """A signature with inputs."""

    name: str
    signature: Signature
    arrays: Sequence[np.ndarray]


_COUNTS = {"step", "mu_product", "eta", "mu"}
_STATIC = {"age": (0, 1), "ns_steps": 2, "adjust_lr_fn": "original", "norm_type": 2.0}
_OTHERS: dict[str, dict[str, Any]] = {
    "lbfgs_step": {
        "grad": numbers(np.float32, 6),
        "dirs": [numbers(np.float32, 6, seed=i) for i in range(2)],
        "steps": [numbers(np.float32, 6, seed=i) for i in range(2, 4)],
        "ratios": [np.float32(0.5), np.float32(2)],
        "scale": np.float32(0.1),
    },
    "adafactor_step": {
        "row_var": [np.ones((3, 1), np.float32)] * 2,
        "col_var": [np.ones((1, 4), np.float32)] * 2,
        "variance": [],
    },
    "limit_rows": {"indices": np.array([1, 0, 1])},
}


@lru_cache
def samples() -> dict[str, Sample]:
    """The sample of each row."""
    return {name: sample_of(op) or _of_lists(op) for name, op in TABLE.items()}


def _of_lists(op: OpDef) -> Sample:
    """The sample of an optimizer's step, which takes lists of tensors."""
    given: dict[str, Any] = {}
    for at, param in enumerate(op.params):
        if param.kind is Kind.ARRAYS:
            shape = () if param.name in _COUNTS else (3, 4)
            given[param.name] = [np.abs(numbers(np.float32, *shape, seed=at + i)) + 0.1 for i in range(2)]
        elif param.kind is Kind.ARRAY and param.default is REQUIRED:
            given[param.name] = numbers(np.float32, 3, 4, seed=at)
        elif param.default is REQUIRED:
            given[param.name] = _STATIC.get(param.name, False) if param.kind is Kind.STATIC else 0.1
    return as_sample(op, given | _OTHERS.get(op.name, {}))


def programs(
    sample: Sample, dtypes: Sequence[DType | None] = (None, *DTYPES), *, derivatives: bool = True
) -> Iterator[Program]:
    """A sample in each of these types that its row takes, None for its own, and its derivatives."""
    seen: set[Signature] = set()
    for dtype in dtypes:
        program = _program(sample, dtype)
        if program is not None and program.signature not in seen:
            seen.add(program.signature)
            yield program
            if derivatives and sample.op.derivative.exists:
                yield from _derivatives(program)


def _program(sample: Sample, dtype: DType | None) -> Program | None:
    static, arrays, avals = [], [], []
    pending = list(sample.arrays)
    for param in sample.op.params:
        entry, inputs, weak = _entry(param, sample.static[param.name], pending)
        static.append(entry)
        for array in inputs:
            arrays.append(array if weak else _cast(array, dtype))
            avals.append(aval_of(array.shape, from_numpy(arrays[-1].dtype), weak=weak))
    try:
        with warnings.catch_warnings(action="ignore"):
            signature = signature_of(call_of(sample.op, tuple(static)), tuple(avals))
    except WeftError:
        if dtype is None and not any(p.kind is Kind.DTYPE for p in sample.op.params):
            raise
        return None  # the row refuses this type
    return Program(f"{sample.op.name} {dtype.name if dtype else ''}", signature, arrays)


def _entry(param: Param, value: Any, pending: list[Any]) -> tuple[Any, list[np.ndarray], bool]:
    """A call's entry for a parameter, the inputs that it takes, and whether these are numbers."""
    if param.kind is Kind.KEY:
        return many(2), list(map(np.asarray, _SEED_AND_DRAW)), True
    if param.kind in TENSOR_KINDS and value is not None:
        inputs = [np.asarray(pending.pop(0)) for _ in range(abs(value))]
        return (ONE if value > 0 else many(-value)), inputs, False
    if param.kind is Kind.SCALAR and value is not None and value is not param.default:
        number = np.asarray(value)
        return ONE, [number.astype({"f": np.float64, "c": np.complex128}.get(number.dtype.kind, np.int64))], True
    return (Exact(value) if param.text == "int | float" else value), [], False


def _cast(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Floating and complex arrays in the type; whole numbers too, if the type is for those."""
    category = {"f": FLOAT, "c": COMPLEX}.get(array.dtype.kind, INTEGER)
    if dtype is None or (category >= FLOAT) is not (dtype.category >= FLOAT):
        return array
    return (array.real if dtype.category < COMPLEX else array).astype(dtype.numpy)


def _derivatives(program: Program) -> Iterator[Program]:
    """By everything that has a derivative, from each output."""
    signature = program.signature
    need = tuple(i for i, a in enumerate(signature.avals) if a.dtype.is_differentiable and not a.weak)
    smooth = [at for at, output in enumerate(signature.outputs[: signature.main]) if output.taped is not None]
    prepared = prepare(program.signature.trace) if need and smooth else None
    outputs = (
        prepared(*program.arrays)
        if prepared is not None
        else [np.asarray(x) for x in jax.jit(signature.fn)(*program.arrays)]
        if need and smooth
        else []
    )
    for at in smooth if need else []:
        derivative = derivative_of(signature, need, (at,))
        if derivative.signature is not None:
            operands = [*program.arrays, *outputs, numbers(outputs[at].dtype, *outputs[at].shape)]
            yield Program(f"{program.name} derivative", derivative.signature, derivative.pick(operands))


if __name__ == "__main__":
    used: Counter[str] = Counter()
    lacking: dict[str, str] = {}
    for row in samples().values():
        for program in programs(row):
            used.update({equation.name for equation in flattened(program.signature.trace).equations})
            lacking.update(dict.fromkeys(missing(program.signature.trace), program.name))
    print("\n".join(f"{count:6} {name}" for name, count in used.most_common()))
    print("missing:", lacking)
