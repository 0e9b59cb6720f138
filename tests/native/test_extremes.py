import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from tests.native.formulas import draw
from weft.errors import DTypeError, ShapeError
from weft.ops._kernels import extremes

counts = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 33, 64, 100, 300])


def check(x, *axes):
    for least, function in ((False, np.max), (True, np.min)):
        with np.errstate(invalid="ignore"):
            chosen, expected = extremes.extreme(x, axes, least=least), function(x.astype(np.float64), axes)
            assert chosen.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(chosen).astype(np.float64), expected)


def sown(x, seed):
    """The array with NaN and infinities at a few places."""
    rng = np.random.default_rng(seed)
    for number in (np.nan, np.inf, -np.inf):
        x.reshape(-1)[rng.integers(0, x.size, 1 + x.size // 200)] = number
    return x


DTYPES = [np.float32, np.float64, np.float16, jnp.bfloat16]


@given(counts, counts, counts, st.sampled_from(DTYPES), st.integers(0, 9))
def test_any_sizes(outer, count, inner, dtype, seed):
    x = draw(seed, outer, count, inner).astype(dtype)
    check(x, 1)
    check(sown(x, seed), 1)
    check(x, 0, 2)
    check(x, 0, 1, 2)


@pytest.mark.parametrize("shape", [(1, 2_000_001, 1), (3, 70_001, 1), (1, 40_000, 10), (2, 3, 100_000), (1, 700, 3000)])
def test_several_tasks(shape):
    x = draw(1, *shape)
    check(x, 1)
    check(sown(x, 2), 1)


def test_each_place_of_a_nan():
    for count in (1, 31, 32, 100):
        x = np.where(np.eye(count), np.nan, draw(1, count, count)).astype(np.float32)
        check(x, 0)
        check(x, 1)
    with np.errstate(invalid="ignore"):
        check(np.array([[np.inf, -np.inf, np.inf - np.inf]], np.float32), 1)
    check(np.full((2, 33), -np.inf, np.float32), 1)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_every_number_of_16_bits(dtype):
    """Compared as integers: all numbers in a column against others, in rows of each length, with every NaN."""
    every = np.arange(1 << 16).astype(np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # as bfloat16, a signalling NaN is one
        is_nan = np.isnan(every)
    numbers = np.sort(every[~is_nan])
    check(np.lib.stride_tricks.sliding_window_view(np.concatenate([every[::97], every[::-89]]), 33).copy(), 1)
    rng = np.random.default_rng(0)
    for count in (2, 31, 32, 33, 64, 129):
        x = numbers[rng.integers(0, len(numbers), (count, 257))]
        check(x, 0)
        check(x.T.copy(), 1)
    for nan in every[is_nan][::31]:
        for at in (0, 40):
            x = np.zeros(41, dtype)
            x[at] = nan
            assert np.isnan(extremes.extreme(x, [0], least=bool(at))).item()


@pytest.mark.compiled
def test_programs_take_it():
    texts = []
    for size in (64, 100_000):
        lowered = jax.jit(torch.to_jax(lambda x: x.amax())).lower(jax.ShapeDtypeStruct((size,), np.float32))
        texts.append("weft_extremes_f32" in lowered.as_text())
    assert texts == [False, True]


def test_refused():
    with pytest.raises(DTypeError, match="takes floats of 16 to 64 bits, got int32"):
        extremes.extreme(np.zeros(3, np.int32), [0], least=False)
    with pytest.raises(ShapeError, match=r"expected numbers to choose from, got shape \(0, 3\)"):
        extremes.extreme(np.zeros((0, 3), np.float32), [0], least=False)
