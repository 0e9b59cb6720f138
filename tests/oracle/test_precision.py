"""Functions of single elements: PyTorch's bits in 16-bit types, and its answers at special values."""

from __future__ import annotations

import itertools
from inspect import Parameter
from typing import Any

import numpy as np
import pytest

import weft
from tests.oracle.replay import public
from weft.ops._dims import pointwise
from weft.ops._kinds import TENSOR_KINDS, Kind
from weft.ops._table import TABLE, OpDef

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = pytest.mark.oracle

_COMPLEX = ("complex", "polar")
_HALVES = ("float16", "bfloat16")
_DTYPES = (*_HALVES, "float32", "float64", "int64", "int32", "int8", "uint8", "bool")
_MODULES = {"": torch, "nn.functional": torch.nn.functional}

_ARITHMETIC = ("elementwise", "unary", "compare")  # files of rows whose results are defined to the last bit
_ULPS = {
    # PyTorch adds up a product without rounding it first, or XLA does
    "add": 4,
    "sub": 4,
    "subtract": 4,
    "rsub": 4,
    "addcmul": 1,
    "lerp": 1,
    # PyTorch rounds between its steps, or computes a function less exactly
    "floor_divide": 1,
    "pow": 1,
    "pow_number": 1,
    "logaddexp": 1,
    "logaddexp2": 1,
    "atan2": 1,
    "hypot": 1,
    "ldexp": 1,
    "arctan2": 1,
    "xlogy": 1,
    "erf": 4,
    "lgamma": 2,
    "gelu": np.inf,
    "logit": np.inf,
    "hardshrink": np.inf,  # a bound that is rounded moves elements across
}


def _is_of_elements(row: OpDef) -> bool:
    """Whether a row maps elements, draws nothing, and is a function of both frameworks."""
    if row.dims is not pointwise or row.view or row.public.module not in _MODULES or row.name in _COMPLEX:
        return False
    if any(param.kind is Kind.KEY for param in row.params):
        return False
    path = f"{row.public.module}.{row.name}" if row.public.module else row.name
    return public(path) is not None and hasattr(_MODULES[row.public.module], row.name)


_ROWS = {name: row for name, row in TABLE.items() if _is_of_elements(row)}


def _tensors(row: OpDef) -> list[Any]:
    """The parameters that are tensors and must be given."""
    return [p for p in row.params if p.kind in TENSOR_KINDS and p.default is Parameter.empty]


def _call(framework: Any, row: OpDef, columns: Any, dtype: str, numbers: bool) -> Any:
    """The row's function in one framework; `numbers` takes Python numbers wherever the row does."""
    tensors = _tensors(row)
    args = [framework.tensor(list(c), dtype=getattr(framework, dtype)) for c in columns[: len(tensors)]]
    kwargs = {}
    if numbers:
        last = len(args) - 1
        if last > 0 and tensors[last].kind is Kind.OPERAND:
            args[last] = 1.7
        for param in row.params:
            optional = param.default is not Parameter.empty
            if param.kind is Kind.SCALAR or (param.kind is Kind.OPERAND and optional):
                kwargs[param.name] = 1.7 if param.name.startswith("max") else 0.37
    path = f"{row.public.module}.{row.name}" if row.public.module else row.name
    function = public(path) if framework is weft else getattr(_MODULES[row.public.module], row.name)
    result = function(*args, **kwargs)
    return result if isinstance(result, (tuple, list)) else (result,)


def _takes_numbers(row: OpDef) -> bool:
    return any(p.kind is Kind.SCALAR or (at and p.kind is Kind.OPERAND) for at, p in enumerate(row.params))


def _attempt(*call: Any) -> Any:
    try:
        return _call(*call)
    except Exception as error:  # what one framework refuses, the other has to refuse, too
        return error


def _both(row: OpDef, columns: Any, dtype: str, numbers: bool = False) -> Any:
    """Pairs of results as arrays; none where both refuse the call."""
    wanted, found = (_attempt(framework, row, columns, dtype, numbers) for framework in (torch, weft))
    if isinstance(wanted, Exception):
        return []
    assert not isinstance(found, Exception), (dtype, numbers, found)
    for t, w in zip(wanted, found, strict=True):
        assert str(t.dtype) == str(w.dtype)
    return [
        (
            t.double().numpy() if t.is_floating_point() else t.numpy(),
            np.array((w.double() if t.is_floating_point() else w).tolist()),
            t.dtype,
        )
        for t, w in zip(wanted, found, strict=True)
    ]


def _ranks(values: np.ndarray, dtype: Any) -> np.ndarray:
    """16-bit floats by their place in the order of all such floats; denormal ones, which XLA flushes, as zeros."""
    flushed = np.where(np.abs(values) < torch.finfo(torch.bfloat16).tiny, 0, values)
    bits = torch.tensor(flushed).to(dtype).view(torch.int16).numpy().astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.parametrize("name", _ROWS)
def test_16_bit_results(name: str):
    row = _ROWS[name]
    draw = np.random.default_rng(0)
    columns = [
        np.concatenate([draw.standard_normal(400) * 3, draw.uniform(-0.999, 0.999, 300), draw.uniform(0.1, 4, 300)]),
        np.concatenate([draw.standard_normal(500) * 3, draw.uniform(0.1, 4, 500)]),
        draw.uniform(-2, 2, 1000),
    ]
    exact = row.impl.__module__.rpartition(".")[2] in _ARITHMETIC
    for dtype, numbers in itertools.product(_HALVES, (False, True)[: 1 + _takes_numbers(row)]):
        for wanted, found, kind in _both(row, columns, dtype, numbers):
            assert np.array_equal(np.isnan(wanted), np.isnan(found))
            if kind not in (torch.float16, torch.bfloat16):
                assert np.array_equal(wanted, found, equal_nan=True), (dtype, numbers)
                continue
            off = np.abs(_ranks(wanted, kind) - _ranks(found, kind))[~np.isnan(wanted)]
            assert off.max(initial=0) <= _ULPS.get(name, 0 if exact else 1), (dtype, numbers, wanted[off.argmax()])


def _special(dtype: str, row: OpDef) -> list[Any]:
    """The values of a type at which functions are special. Denormal ones are of float16 alone: XLA flushes others.

    Integers that are divided leave out zero; pairs leave out the least one, whose quotient by -1 ends the process.
    """
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return [True, False]
    if not kind.is_floating_point:
        info = torch.iinfo(kind)
        edges = [*([] if row.check.elements else [0]), *([] if len(_tensors(row)) > 1 else [info.min])]
        return [*edges, info.max, 1, 2, 7, *([-1, -2, -7, info.min + 1] if info.min else [])]
    info = torch.finfo(kind)
    plain = [np.nan, np.inf, 0.0, info.tiny, info.max, 0.5, 1.0, 2.5, 10.0]
    return [*plain, *(-x for x in plain[1:]), *([info.tiny / 4, -info.tiny / 4] if dtype == "float16" else [])]


@pytest.mark.parametrize("name", [name for name, row in _ROWS.items() if len(_tensors(row)) < 3])
def test_special_values(name: str):
    row = _ROWS[name]
    for dtype in _DTYPES:
        columns = list(zip(*itertools.product(_special(dtype, row), repeat=len(_tensors(row))), strict=True))
        for wanted, found, kind in _both(row, columns, dtype):
            cases = [
                case
                for case in zip(*columns, wanted, found, _alike(name, wanted, found, kind), strict=True)
                if not case[-1] and not _is_known(name, dtype, case)
            ]
            assert not cases, f"{dtype}: (arguments, PyTorch's result, the result) {cases[:5]}"


_ZEROS_ARE_EQUAL = frozenset(
    {
        "relu",
        "relu6",
        "gelu",
        "logsigmoid",
        "softshrink",
        "hardswish",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "clamp_min",
        "clamp_max",
        "logaddexp2",
    }
)
"""Functions of which zeros have whatever sign comes out."""


def _is_known(name: str, dtype: str, case: tuple[Any, ...]) -> bool:
    """Whether an answer of PyTorch's is an accident of its way of computing."""
    first = case[0]
    if name == "softsign":  # it adds one in the type of the integers
        return not dtype.startswith(("float", "bfloat"))
    if name == "hardswish":  # it multiplies before it divides
        return abs(first) > 1e4
    if name == "gelu":  # its vectors round on the way, which overflows
        return first > 1e38
    if name in ("remainder", "fmod"):  # its vectors divide, which overflows
        return abs(first / case[1]) > 1e30
    if name == "ldexp":  # its powers of two may be denormal
        return first != 0 and case[1] <= -127
    if name == "i0":  # it multiplies infinity by 0
        return abs(first) == np.inf
    if name == "_standard_gamma_grad":  # its approximations are off by up to a fifth; other parameters have no draws
        return not first > 0 or not case[1] <= 0
    return name in ("igamma", "igammac")  # it gives numbers for NaN, and accuracy is that of a series


def _alike(name: str, wanted: np.ndarray, found: np.ndarray, kind: Any) -> np.ndarray:
    """Equal; finite numbers nearly, and what is about to become denormal roughly."""
    if wanted.dtype.kind != "f":
        return wanted == found
    info = torch.finfo(kind)
    with np.errstate(all="ignore"):
        signs = True if name in _ZEROS_ARE_EQUAL else np.signbit(wanted) == np.signbit(found)
        equal = (wanted == found) & signs
        near = np.isfinite(wanted) & (np.abs(wanted - found) <= 16 * info.eps * np.maximum(np.abs(wanted), 0.1))
        tiny = (np.abs(wanted) <= 2 * info.tiny) & (np.abs(found) <= 2 * info.tiny)
    return equal | (np.isnan(wanted) & np.isnan(found)) | ((near | tiny) & (wanted != found))
