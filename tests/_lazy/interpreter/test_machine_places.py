"""The machine reads and writes places that are computed, and orders elements, as NumPy does, to the last bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests._lazy.interpreter.check import COMPLEX, DTYPES, FLOATS, INTEGERS, bfloat16, nasty, numbers
from tests._lazy.interpreter.test_machine import SIZES, filled, same
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built")

MODES = ["fill", "clip"]
COMBINED = {
    "set": lambda x, i, u, mode: x.at[i].set(u, mode=mode),
    "add": lambda x, i, u, mode: x.at[i].add(u, mode=mode),
    "multiply": lambda x, i, u, mode: x.at[i].multiply(u, mode=mode),
    "min": lambda x, i, u, mode: x.at[i].min(u, mode=mode),
    "max": lambda x, i, u, mode: x.at[i].max(u, mode=mode),
}


def positions(limit, *shape):
    """Positions of which some come several times, and some are out of bounds."""
    return np.random.default_rng(3).integers(-limit - 2, limit + 3, shape).astype(np.int32)


# --- scatters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", COMBINED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_are_combined_one_after_the_other(dtype, how):
    if (dtype.kind == "c" and how in ("min", "max")) or (dtype.kind == "b" and how in ("add", "multiply")):
        return
    combined = COMBINED[how]
    for mode in MODES:
        for count in (0, 1, 2, 300):
            x, rows = filled(dtype, 40), positions(40, count)
            called = same(lambda x, i, u, m=mode: combined(x, i, u, m), x, rows, filled(dtype, count, seed=1))
            wide, updates = filled(dtype, 40 * 33).reshape(40, 33), filled(dtype, count * 33, seed=1).reshape(count, 33)
            called += same(lambda x, i, u, m=mode: combined(x, i, u, m), wide, rows, updates)
            across = filled(dtype, 7 * 40).reshape(7, 40)
            same(lambda x, i, u, m=mode: combined(x.T, i, u, m), wide, positions(33, 7), across)
            same(lambda x, i, u, m=mode: combined(x.T, i, u.T, m), wide, positions(33, 7), across.T.copy())
            is_left = (dtype == bfloat16 and how != "set") or (dtype.kind == "c" and how == "multiply")
            assert not called or is_left


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_extremes_of_zeros_and_nan(dtype):
    corners = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45], dtype)
    x, y = np.repeat(corners, 7), np.tile(corners, 7)
    for how in ("min", "max"):
        for length in (1, 7, 49):
            lines, updates = np.tile(x, 9)[: 49 * 9].reshape(-1, length), np.tile(y, 9)[: 49 * 9].reshape(-1, length)
            rows = np.arange(len(lines), dtype=np.int32)
            assert same(lambda x, i, u, h=how: COMBINED[h](x, i, u, "fill"), lines, rows, updates) == []
            assert same(lambda x, i, u, h=how: COMBINED[h](x[:, 0], i, u[:, 0], "fill"), lines, rows, updates) == []


@pytest.mark.parametrize("how", ["set", "add", "max"])
def test_windows_of_every_form_are_written(how):
    x = numbers(np.float32, 5, 6, 7)
    combined = COMBINED[how]
    for mode in MODES:
        for key in [(0, slice(None), 1), (slice(None), 2), (slice(1, 3),), (..., 3), (slice(None), slice(1, 4), 2)]:
            assert same(lambda x, m=mode, k=key: combined(x, k, x[k] * 3, m), x) == []
        i, j, k = positions(5, 4), positions(6, 3, 4), positions(7, 4)
        assert same(lambda x, i, j, m=mode: combined(x, (i, j), 2.0, m), x, i, j) == []
        assert same(lambda x, i, k, m=mode: combined(x, (i, slice(None), k), x[:4, :, 0], m), x, i, k) == []
        assert same(lambda x, i, k, m=mode: combined(x, (slice(None), i, k), -1.5, m), x, i, k) == []
    numbered = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    for start in (-1, 0, 2, 3, 9):
        for mode in (lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP):
            same(
                lambda x, at, u, m=mode: lax.scatter_add(x, at, u, numbered, mode=m),
                numbers(np.float32, 6, 4),
                np.array([[start], [1]]),
                numbers(np.float32, 2, 3, 4),
            )
            same(
                lambda x, at, u, m=mode: lax.scatter(x, at, u, lax.ScatterDimensionNumbers((0, 1), (), (0,)), mode=m),
                numbers(np.float32, 6, 4),
                np.array([start]),
                numbers(np.float32, 3, 4),
            )


def test_derivatives_of_what_is_taken():
    x, i = numbers(np.float32, 9, 5), positions(9, 3, 4)
    assert same(jax.grad(lambda x, i: (x[i] ** 2).sum(), argnums=0), x, i) == []
    along = np.abs(positions(4, 9, 2)) % 5
    assert same(jax.grad(lambda x, i: (jnp.take_along_axis(x, i, 1) ** 2).sum()), x, along) == []


# --- gathers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_at_positions(dtype):
    x = filled(dtype, 5 * 6 * 7).reshape(5, 6, 7)
    i, j = positions(5, 4), positions(6, 3, 4)
    for mode in MODES:
        for axis in range(3):
            for rows in (i, j, positions(5), np.zeros((0, 2), np.int32)):
                assert same(lambda x, i, a=axis, m=mode: jnp.take(x, i, a, mode=m), x, rows) == []
        assert same(lambda x, i, j, m=mode: x.at[i, j].get(mode=m), x, i, j) == []
        assert same(lambda x, i, j, m=mode: x.at[:, j, i].get(mode=m), x, i, j) == []
        assert same(lambda x, i, j, m=mode: x.T.at[i, :, j].get(mode=m), x, i, j) == []
        assert same(lambda x, i, m=mode: x[::-1, :, ::2].at[:, :, i].get(mode=m), x, i) == []
        for axis, size in enumerate(x.shape):
            along = positions(size, *[3 if at == axis else n for at, n in enumerate(x.shape)])
            assert same(lambda x, i, a=axis, m=mode: jnp.take_along_axis(x, i, a, mode=m), x, along) == []
    numbered = lax.GatherDimensionNumbers((1, 2), (), (0,))
    for mode in (lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP):
        for at in ([[-1], [2], [1]], [[0], [4], [9]]):
            same(lambda x, i, m=mode: lax.gather(x, i, numbered, (3, 7), mode=m), x[0].copy(), np.array(at))
            same(lambda x, i, m=mode: lax.gather(x, i, numbered, (3, 4), mode=m), x[0].copy(), np.array(at))


def test_rows_of_many_elements():
    for size in SIZES:
        x = filled(np.float32, 3 * size).reshape(3, size)
        assert same(lambda x, i: x[i] + 1, x, positions(3, 5)) == []
        if size:
            assert same(lambda x, i: x.T[i], x, positions(size, 70)) == []


# --- parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_begin_at_computed_places(dtype):
    x = filled(dtype, 5 * 6 * 7).reshape(5, 6, 7)
    for kind in (np.int32, np.int64, np.uint8, np.int8):
        for start in (0, 1, 3, 100, *([-1, -100] if np.dtype(kind).kind == "i" else [])):
            at = np.array(start, kind)
            assert same(lambda x, i: lax.dynamic_slice(x, (i, i, i), (2, 6, 3)), x, at) == []
            assert same(lambda x, i: lax.dynamic_slice(x.T, (i, i, i), (2, 3, 5)).sum(0), x, at) == []
            assert same(lambda x, i: lax.dynamic_slice(x[::-1, :, ::2], (i, i, i), (2, 3, 4)), x, at) == []
            assert same(lambda x, i: lax.dynamic_slice(x, (i, i, i), (2, 0, 3)), x, at) == []
            part = lambda x, i: lax.dynamic_update_slice(x, x[1:3, :, ::2], (i, i, i))  # noqa: E731
            assert same(part, x, at) == []
            assert same(lambda x, i: lax.dynamic_update_slice(x.T, x.T[2:5, 1:2], (i, i, i)), x, at) == []
            assert same(lambda x, i: lax.dynamic_update_slice(x, x[:, :0], (i, i, i)), x, at) == []
    same(lambda x, i: lax.dynamic_slice(x, (i, i, i), (2, 6, 3)), x, np.array(2**64 - 1, np.uint64))


def test_parts_in_chains_of_steps():
    x = numbers(np.float32, 70, 300)

    def steps(x, at):
        part = lax.dynamic_slice(x * 2 + 1, (at, 0), (3, 300))
        moved = lax.dynamic_update_slice(x - 1, jnp.tanh(part) + x[:3], (at + 1, 2))
        return moved * 2, part.sum(0), lax.dynamic_update_slice(moved, part, (moved[0, 0].astype(int), at))

    for at in (-3, 0, 66, 67, 500):
        assert same(steps, x, np.array(at)) == []


@pytest.mark.parametrize("dtype", [np.dtype(bool), *INTEGERS, *FLOATS, *COMPLEX], ids=str)
def test_arrays_are_padded_repeated_and_joined(dtype):
    x = filled(dtype, 4 * 5).reshape(4, 5)
    for padding in [((1, 2, 0), (0, 0, 0)), ((0, 0, 2), (3, 1, 1)), ((-1, 2, 0), (1, -3, 1)), ((-3, -1, 0), (0, 1, 0))]:
        assert same(lambda x, p=padding: lax.pad(x, x[0, 0], p), x) == []
        assert same(lambda x, p=padding: lax.pad(x.T, jnp.zeros((), dtype), p), x) == []
    assert same(lambda x: (jnp.tile(x, (2, 3)), jnp.tile(x.T, (1, 2)), jnp.tile(x[:0], (2, 2))), x) == []
    joined = lambda x: jnp.concatenate([x.T, x.T[::-1], x.T[:0]], 0)  # noqa: E731
    assert same(lambda x: (joined(x), joined(x).sum(0), jnp.stack([x.T, x.T + x.T], 1)), x) == []


# --- order ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_in_order(dtype, size):
    """With ties, NaN of both signs, infinities and both zeros."""
    x = filled(dtype, size)
    left = dtype.kind == "c"
    if dtype.kind == "f":
        x[::5] *= -1
    assert not same(lambda x: (jnp.sort(x), jnp.argsort(x), jnp.sort(x[::-1])), x) or left
    assert not same(lambda x: lax.sort((x, jnp.arange(size), x[::-1]), num_keys=1), x) or left
    if size > 3 and dtype.kind not in "bc":
        assert same(lambda x: lax.top_k(x, 3), x) == []


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.int64), bfloat16], ids=str)
def test_lines_in_order_along_any_axis(dtype):
    x = np.resize(nasty(dtype), (4, 5, 6)).astype(dtype)
    for axis in range(3):
        assert same(lambda x, a=axis: (jnp.sort(x, a), jnp.argsort(x, a), jnp.sort(x.T[::-1], a)), x) == []
        assert same(lambda x, a=axis: (x.argmax(a), x.argmin(a), x.T.argmax(a)), x) == []
        assert same(lambda x, a=axis: lax.sort((x, x + x), dimension=a, num_keys=1), x) == []
    same(lambda x: lax.sort((x, x + x), num_keys=2), x)


# --- windows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ((1, 1), "VALID", (1, 1), (1, 1)),
        ((2, 1), ((1, 1), (0, 2)), (1, 1), (1, 2)),
        ((1, 2), ((-1, 2), (1, -1)), (2, 1), (2, 1)),
        ((1, 1), ((0, 0), (0, 0)), (1, 1), (5, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64), bfloat16], ids=str)
def test_convolutions_are_products_of_copied_windows(dtype, options):
    def convolved(x, kernel):
        return lax.conv_general_dilated(x, kernel, *options, feature_group_count=2)

    x, kernel = numbers(dtype, 2, 4, 9, 7), numbers(dtype, 6, 2, 3, 2)
    called = same(lambda x, k: convolved(x, k) * 2, x, kernel)
    assert not called or 0 in convolved(x, kernel).shape
    same(jax.grad(lambda x, k: (convolved(x, k) ** 2).sum(), argnums=(0, 1)), x, kernel)


def test_large_products_are_no_calls():
    images, kernel = numbers(np.float32, 4, 3, 28, 28), numbers(np.float32, 8, 3, 5, 5)
    assert same(lambda x, k: lax.conv(x, k, (1, 1), "SAME"), images, kernel) == []
    assert same(lambda x: x @ x, numbers(np.float32, 128, 128)) == []


@pytest.mark.parametrize(
    "windows",
    [
        ((1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        ((1, 1, 3, 2), (1, 1, 1, 3), ((0, 0), (0, 0), (1, 1), (0, 2))),
        ((1, 1, 10, 2), (1, 1, 1, 1), "VALID"),
    ],
)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.int32), bfloat16], ids=str)
def test_windows_are_reduced(dtype, windows):
    bounds = np.iinfo(dtype) if dtype.kind == "i" else np.finfo(np.float32)
    x = numbers(dtype, 2, 3, 9, 8)
    infinite = (-np.inf, np.inf) if dtype.kind != "i" else (bounds.min, bounds.max)
    for how, start in zip((lax.add, lax.max, lax.min), (0, *infinite), strict=True):
        called = same(lambda x, h=how, s=start: lax.reduce_window(x, dtype.type(s), h, *windows) + x[:1, :1, :1, :1], x)
        assert not called or windows[0][2] == 10
