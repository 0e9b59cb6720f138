"""Compiled programs against NumPy, over sizes at which XLA computes in other ways, with NaN, infinities and ties.

The thresholds of XLA:CPU lie at its vectors (8 to 64 elements), at the windows of its reductions (32), where a library
takes over (64 and 4,096 elements) and where threads share the work.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.ops.sized_operators import ALL, HALVES, REDUCTIONS, Operator, contents

pytestmark = pytest.mark.compiled

FEW = [((4_097,), 0), ((67, 131), 1)]
SHORT = [*FEW, ((31,), 0), ((65_537,), 0), ((131, 67), 0)]
LONG = [
    *[((count,), 0) for count in (32, 33, 63, 64, 65, 128, 1_000, 4_095, 4_096, 32_768, 2_000_001)],
    *[((3, 4_099), 1), ((4_099, 3), 0), ((1_000, 1_000), 0), ((1_000, 1_000), 1), ((100_003, 33), 1)],
    *[((33, 65, 31), 1), ((40, 100_000), 0), ((2, 3, 4_096), 2), ((5_000, 2, 2), 0)],
]
LAYOUTS = {
    "transposed": lambda x: x.swapaxes(0, -1),
    "every other": lambda x: x[..., ::2],
    "flipped": lambda x: weft.flip(x, (0,)) if isinstance(x, weft.Tensor) else np.flip(x, 0),
}


def differences(operator: Operator, x: np.ndarray, dim: int, layout: Any = lambda x: x) -> str:
    """What differs from NumPy's answer, or nothing."""
    seen = layout(x)
    tensor = layout(weft.from_numpy(x) if x.dtype not in HALVES[1:] else weft.tensor(x.astype(np.float32)).bfloat16())
    with np.errstate(all="ignore"):
        asked = seen if operator.bits else seen.astype(np.float64)
        results, expected = (
            entry if isinstance(entry, tuple) else (entry,)
            for entry in (operator.function(tensor, dim), operator.expected(asked, dim))
        )
        size = operator.expected(np.abs(asked), dim) if operator.eps else None
    assert len(results) == len(expected)
    told = [
        difference(array(result), np.asarray(want), operator, size)
        for result, want in zip(results, expected, strict=True)
    ]
    return "; ".join(filter(None, told))


def array(result: Any) -> np.ndarray:
    if result.dtype == weft.bfloat16:
        return result.float().numpy().astype(ml_dtypes.bfloat16)
    return result.numpy()


def difference(got: np.ndarray, want: np.ndarray, operator: Operator, size: Any) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    is_float = got.dtype.kind not in "iub"
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype)
        same = got == want
        if is_float:
            same |= np.isnan(got) & np.isnan(want)
        if operator.eps:
            x, y = got.astype(np.float64), want.astype(np.float64)
            scale = 1 + np.abs(y) + np.where(np.isfinite(size), np.abs(size), 0)
            same |= np.isfinite(x) & (np.abs(x - y) <= operator.eps * float(ml_dtypes.finfo(got.dtype).eps) * scale)
        if operator.bits and is_float:
            same &= (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    if same.all():
        return ""
    at = np.argwhere(~same)
    return f"{got[~same][:3].tolist()}, not {want[~same][:3].tolist()}, at {at[:3].tolist()} ({len(at)})"


def check(operator: Operator, shape: tuple[int, ...], dim: int, dtype: Any = np.float32, layout: Any = None) -> None:
    told = []
    for at, (name, numbers) in enumerate(contents(int(np.prod(shape)), np.dtype(dtype))):
        if at < 2 or not operator.finite:
            text = differences(operator, numbers.reshape(shape), dim, *([layout] if layout else []))
            told += [f"{name}: {text}"] if text else []
    assert not told, "\n".join(told)


@pytest.mark.parametrize("operator", ALL, ids=repr)
def test_sizes(operator):
    for shape, dim in SHORT if operator in REDUCTIONS else FEW:
        check(operator, shape, dim)


@pytest.mark.soak
@pytest.mark.parametrize(("shape", "dim"), [*SHORT, *LONG], ids=str)
@pytest.mark.parametrize("operator", ALL, ids=repr)
def test_more_sizes(operator, shape, dim):
    check(operator, shape, dim)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", [np.dtype(np.float64), *HALVES], ids=str)
@pytest.mark.parametrize("operator", ALL, ids=repr)
def test_other_types(operator, dtype):
    if dtype in HALVES and operator.eps > 4:
        pytest.skip("several operators, each of which rounds")
    for shape, dim in SHORT:
        check(operator, shape, dim, dtype)


@pytest.mark.soak
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", ALL, ids=repr)
def test_layouts(operator, layout):
    for shape, dim in [((131, 67), 0), ((131, 67), 1), ((35, 4_099), 0), ((4_099, 70), 1)]:
        check(operator, shape, dim, layout=LAYOUTS[layout])
