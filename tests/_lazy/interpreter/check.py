"""Functions that are interpreted and compiled: both must give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np

from weft._lazy import runtime as runtime  # sets jax up as programs expect it
from weft._lazy.interpreter import missing, prepare
from weft._lazy.interpreter.machine import machine_for
from weft._lazy.interpreter.table import is_float as is_real
from weft._lazy.native import native
from weft._lazy.precision import KEEP_CASTS

bfloat16 = np.dtype(ml_dtypes.bfloat16)
SIGNED = [np.dtype(f"int{n}") for n in (8, 16, 32, 64)]
UNSIGNED = [np.dtype(f"uint{n}") for n in (8, 16, 32, 64)]
INTEGERS = [*SIGNED, *UNSIGNED]
FLOATS = [np.dtype(np.float16), bfloat16, np.dtype(np.float32), np.dtype(np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
DTYPES = [np.dtype(bool), *INTEGERS, *FLOATS, *COMPLEX]


class Case(NamedTuple):
    """A function on arrays; its results may be off by `ulps` of the largest number, or of each one if `relative`."""

    name: str
    function: Callable[..., Any]
    arrays: Sequence[np.ndarray]
    ulps: float = 0
    relative: bool = True


def interpret(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The function's results, interpreted; inputs are read-only while it runs."""
    closed = jax.make_jaxpr(function)(*arrays)
    assert missing(closed) == set()
    prepared = prepare(closed)
    assert prepared is not None
    inputs = [np.asarray(x).view() for x in arrays]
    for x in inputs:
        x.flags.writeable = False
    results = prepared(*inputs)
    if native is not None:
        by_machine = machine_for(prepared)(inputs)
        assert len(by_machine) == len(results)
        # The machine copies inputs that have gaps, and a product may round otherwise where its rows lie otherwise.
        of_copies = prepared(*[np.ascontiguousarray(x).reshape(x.shape) for x in inputs])
        for got, want in zip(by_machine, of_copies, strict=True):
            text = difference_in_bits(got, want)
            assert not text, f"{text}: {[equation.name for equation in prepared.flat.equations]}"
    return results


def difference_in_bits(got: np.ndarray, want: np.ndarray) -> str:
    """What is wrong with a result of the machine, or nothing. Only the payload of NaN may differ."""
    if type(got) is not np.ndarray or (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{type(got).__name__} of {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if not got.flags.c_contiguous:
        return "not contiguous"
    if got.tobytes() == want.tobytes():
        return ""
    parts = [x.view(x.real.dtype) if x.dtype.kind == "c" else x for x in (got, np.asarray(want, order="C"))]
    if not (is_real(got.dtype) or got.dtype.kind == "c"):
        return f"{got}, not {want}"
    width = parts[0].dtype.itemsize
    bits = [np.where(np.isnan(x), 0, x.view(f"u{width}")) for x in parts]
    same_nan = np.array_equal(np.isnan(parts[0]), np.isnan(parts[1]))
    return "" if same_nan and np.array_equal(*bits) else f"{got}, not {want}"


def check(cases: Iterable[Case]) -> None:
    """Compile all functions together, interpret each, and tell which differ."""
    cases = list(cases)

    def whole(inputs: Any) -> Any:
        return [jax.tree.leaves(case.function(*arrays)) for case, arrays in zip(cases, inputs, strict=True)]

    # With fusion emitters, as users' programs are compiled: without, as most tests are, XLA's `cbrt` is off by 60 ulps.
    options = {**KEEP_CASTS, "xla_cpu_use_fusion_emitters": True}
    compiled = jax.jit(whole, compiler_options=options)([case.arrays for case in cases])
    told = []
    for case, wanted in zip(cases, compiled, strict=True):
        results = interpret(case.function, *case.arrays)
        assert len(results) == len(wanted)
        told += [
            f"{case.name}: {text}"
            for got, want in zip(results, wanted, strict=True)
            if (text := difference(got, np.asarray(want), case.ulps, case.relative))
        ]
    assert not told, "\n".join(told)


def difference(got: np.ndarray, want: np.ndarray, ulps: float = 0, relative: bool = True) -> str:
    """What is wrong with a result, or nothing. Zeros stand for denormal numbers, which XLA does not make."""
    if type(got) is not np.ndarray or (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{type(got).__name__} of {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype.kind == "c":
        return difference(got.real, want.real, ulps, relative) or difference(got.imag, want.imag, ulps, relative)
    bad = got != want if want.dtype.kind in "biu" else ~_close(got, want, ulps, relative)
    if not bad.any():
        return ""
    return f"{got[bad][:4].tolist()}, not {want[bad][:4].tolist()}, at {np.argwhere(bad)[:4].tolist()}"


def _close(got: np.ndarray, want: np.ndarray, ulps: float, relative: bool) -> np.ndarray:
    info = ml_dtypes.finfo(want.dtype)
    x, y = (np.where(np.abs(a) <= float(info.tiny), 0, a) for a in (got.astype(np.float64), want.astype(np.float64)))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if ulps == 0:
        return same
    scale = np.abs(y) if relative else np.max(np.abs(y[np.isfinite(y)]), initial=1.0)
    with np.errstate(invalid="ignore"):
        return same | (np.abs(x - y) <= ulps * float(info.eps) * scale)


def numbers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Small numbers of any type, in no order, some of them twice."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(-5 if dtype.kind == "i" else 0, 6, shape).astype(dtype)
    whole = np.asarray(rng.standard_normal(shape).round(2))
    if dtype.kind == "c":
        return (whole + 1j * rng.standard_normal(shape).round(2)).astype(dtype)
    return whole.astype(dtype)


def nasty(dtype: Any) -> np.ndarray:
    """Numbers at which functions differ: zeros, bounds, infinities, NaN, halves, powers of two."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        top, bottom = int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)
        listed = {0, 1, 2, 3, 7, 8, 31, 63, 64, top, top - 1, top // 2, bottom, bottom + 1, -1, -2, -3, -7, -8}
        return np.array(sorted(n for n in listed if bottom <= n <= top), dtype)
    if dtype.kind == "c":
        x, y = pairs(np.array([0, 1, -1, 0.5, -2.25, 3.7]))
        return (x + 1j * y).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    listed = [
        0.5,
        1,
        1.5,
        2.5,
        0.49999997,
        3,
        7.3,
        100.5,
        1e-3,
        1e4,
        127,
        128,
        129,
        255,
        256,
        32768,
        65535,
        2.0**31,
        2.0**32,
        2.0**63,
        2.0**64,
        np.inf,
        float(info.max),
        float(info.tiny),
        float(info.eps),
        1 + float(info.eps),
    ]
    with np.errstate(over="ignore"):
        return np.array([0, *listed, -0.0, *[-x for x in listed], np.nan], np.float64).astype(dtype)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each with each."""
    x, y = np.meshgrid(values, values)
    return x.reshape(-1).copy(), y.reshape(-1).copy()
