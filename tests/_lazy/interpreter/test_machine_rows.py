"""Rows of floats that kernels compute: NumPy's bits, also where zeros of both signs and NaN meet."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests._lazy.interpreter.test_machine import SIZES, filled, same
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built")

SINGLE_AND_DOUBLE = [np.dtype(np.float32), np.dtype(np.float64)]
CORNERS = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.5, -1.5, 3e38]
BINARY = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "where": lambda x, y: jnp.where(x > y, x, y),
}


def corners(dtype, *shape, seed=0):
    """Zeros of both signs, NaN, infinities and a few others, in no order."""
    return np.random.default_rng(seed).choice(CORNERS, shape).astype(dtype)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", SINGLE_AND_DOUBLE, ids=str)
def test_two_operands(dtype, name):
    function = BINARY[name]
    for size in [*SIZES, 15, 16, 17, 31, 33, 100]:
        for make in (corners, lambda dtype, size, seed=0: filled(dtype, size, seed)):
            x, y = make(dtype, size), make(dtype, size, seed=1)
            assert same(lambda x, y: (function(x, y), function(y * 2, x + 1)), x, y) == []
            for number in (0.0, -0.0, np.nan, 2.5):
                one = np.array(number, dtype)
                assert same(lambda x, y: (function(x, y), function(y, x)), x, one) == []


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shape", [(3, 5), (64, 64), (7, 1), (1, 9), (0, 4), (4, 0), (70, 129), (2, 3, 50), (9000, 2)])
def test_rows_and_columns(shape, name):
    function = BINARY[name]
    x = corners(np.float32, *shape)
    row, column = corners(np.float32, shape[-1], seed=1), corners(np.float32, *shape[:-1], 1, seed=2)
    assert same(lambda x, r, c: (function(x, r), function(r, x), function(x, c), function(c, r)), x, row, column) == []
    same(lambda x, r: (function(x[..., ::-1], r), function(x[..., ::-1], x), function(x.T, x[::-1].T)), x, row)
    same(lambda x, c: (function(x, c)[..., ::2] * 2, function(x[..., ::2], c), function(x[:1], x)), x, column)
    same(lambda x, r, c: jnp.maximum(jnp.minimum((x - c) * r + 1, r), c) / (x * x + 2) - r, x, row, column)


@pytest.mark.parametrize("dtype", SINGLE_AND_DOUBLE, ids=str)
def test_extremes_of_rows(dtype):
    for columns in (1, 2, 7, 8, 15, 16, 17, 33, 64, 1000):
        for make in (corners, lambda dtype, *shape: filled(dtype, int(np.prod(shape))).reshape(shape)):
            x = make(dtype, 6, 5, columns)
            assert same(lambda x: (x.max(2), x.min(2), x.max((1, 2)), x.max(1), x.min((0, 2))), x) == []
            same(lambda x: (x[:, ::2].max(2), x[..., ::-1].max(2), x.T.min(0), (x * 0).max(2)), x)
    same(lambda x: (x.max(1), x.min(1)), np.zeros((0, 3), dtype))
    ascending = np.tile(np.arange(-8, 9, dtype=dtype), (4, 3))
    assert same(lambda x: (x.max(1), x.min(1), (-x).max(1), abs(x).min(1)), ascending) == []


def test_choices_of_every_size():
    for dtype in (
        np.bool_,
        np.int8,
        np.float16,
        np.float32,
        np.float64,
        np.int32,
        np.int64,
        np.complex64,
        np.complex128,
    ):
        for size in (0, 1, 3, 8, 15, 16, 17, 33, 4097):
            x, y = filled(dtype, size), filled(dtype, size, seed=1)
            which = filled(np.bool_, size)
            one = filled(dtype, 1).reshape(())
            choose = lambda w, x, y, one: (  # noqa: E731
                jnp.where(w, x, y), jnp.where(w, x, one), jnp.where(w, one, y), jnp.where(w, one, one),
            )  # fmt: skip
            assert same(choose, which, x, y, one) == []
            assert same(lambda w, x, y: jnp.where(w[::-1], x, y[::-1]), which, x, y) == []
