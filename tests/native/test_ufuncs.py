"""Functions of the extension that work as NumPy's do: products of matrices, and functions of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import weft
from tests.native.formulas import close, draw
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(not hasattr(native, "matmul"), reason="the extension has no kernels here")

size = st.sampled_from([0, 1, 2, 5, 8, 9, 16, 33, 64, 130])
layout = st.sampled_from(["rows", "columns", "rows apart", "backwards", "repeated", "elements apart"])
dtypes = st.sampled_from([np.float32, np.float64])


def laid_out(array, layout):
    """The matrices, in memory as `layout` says."""
    if layout == "columns":
        return np.ascontiguousarray(array.mT).mT
    if layout == "rows apart":
        return np.concatenate([array, array], -1)[..., : array.shape[-1]]
    if layout == "backwards":
        return array[..., ::-1, ::-1]
    if layout == "repeated":
        return np.broadcast_to(array[..., :1, :], array.shape)
    if layout == "elements apart":
        return np.repeat(array, 2, -1)[..., ::2]
    return array


@given(size, size, size, layout, layout, dtypes, st.sampled_from([(), (3,), (2, 1)]))
def test_products_of_matrices_anywhere_in_memory(m, k, n, left, right, dtype, batch):
    a, b = laid_out(draw(1, *batch, m, k, dtype=dtype), left), laid_out(draw(2, k, n, dtype=dtype), right)
    result = native.matmul(a, b)
    assert result.dtype == dtype
    assert result.shape == (*batch, m, n)
    close(result, a.astype(np.float64) @ b.astype(np.float64), 3e-5 if dtype == np.float32 else 1e-13)
    transposed = np.empty((*batch, n, m), dtype).mT
    assert np.array_equal(native.matmul(a, b, out=transposed), result)


@pytest.mark.parametrize("shape", [(1, 1), (3, 65), (64, 1), (70, 70)])
def test_products_keep_infinities_and_nan(shape):
    a, b = np.ones(shape, np.float32), np.ones(shape[::-1], np.float32)
    a[0, 0], a[-1, -1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(native.matmul(a, b), a @ b)


def test_the_number_of_threads_changes_no_bit():
    """Sizes from which on several threads compute: products, and chains of steps on elements."""
    draws = weft.Generator().manual_seed(0)
    a, b = (weft.randn(600, 600, generator=draws) for _ in range(2))
    x = weft.randn(1_000_003, generator=draws)

    def computed():
        y = (x * 2 + x.erf()) * weft.sigmoid(x) - x.exp()
        return (a @ b).numpy().copy(), (a.T @ b.T).numpy().copy(), y.numpy().copy()

    before = weft.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            weft.set_num_threads(count)
            results.append(computed())
    finally:
        weft.set_num_threads(before)
    for several in results[1:]:
        for one, other in zip(results[0], several, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "exact", "ulps"), [("erf", special.erf, 6), ("erfc", special.erfc, 12), ("logistic", special.expit, 3)]
)
def test_functions_of_numbers(name, exact, ulps):
    random = np.random.default_rng(0)
    tiny = 10 ** random.uniform(-45, 2.2, 20_000) * random.choice([-1, 1], 20_000)
    x = np.concatenate([random.normal(size=65_537) * 3, random.uniform(-110, 110, 20_000), tiny]).astype(np.float32)
    want = exact(x.astype(np.float64))
    with np.errstate(all="ignore"):
        got = getattr(native, name)(x)
        apart = getattr(native, name)(np.repeat(x, 3)[::3])
    smallest = np.finfo(np.float32).smallest_subnormal
    unit = np.maximum(np.spacing(abs(want).astype(np.float32)), smallest).astype(np.float64)
    assert (abs(got - want) <= ulps * unit).all()
    assert np.array_equal(got, apart)


@pytest.mark.parametrize("name", ["erf", "erfc", "logistic"])
def test_functions_of_what_is_no_number(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        got = getattr(native, name)(x)
    values = {"erf": [0, -0.0, 1, -1, np.nan], "erfc": [1, 1, 0, 2, np.nan], "logistic": [0.5, 0.5, 1, 0, np.nan]}
    np.testing.assert_array_equal(got, np.array(values[name], np.float32))
    assert np.array_equal(np.signbit(got[:4]), np.signbit(values[name][:4]))
