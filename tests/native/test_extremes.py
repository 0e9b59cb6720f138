import jax
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
            np.testing.assert_array_equal(extremes.extreme(x, axes, least=least), function(x, axes))


def sown(x, seed):
    """The array with NaN and infinities at a few places."""
    rng = np.random.default_rng(seed)
    for number in (np.nan, np.inf, -np.inf):
        x.reshape(-1)[rng.integers(0, x.size, 1 + x.size // 200)] = number
    return x


@given(counts, counts, counts, st.sampled_from([np.float32, np.float64]), st.integers(0, 9))
def test_any_sizes(outer, count, inner, dtype, seed):
    x = draw(seed, outer, count, inner, dtype=dtype)
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


@pytest.mark.compiled
def test_programs_take_it():
    texts = []
    for size in (64, 100_000):
        lowered = jax.jit(torch.to_jax(lambda x: x.amax())).lower(jax.ShapeDtypeStruct((size,), np.float32))
        texts.append("weft_extremes_f32" in lowered.as_text())
    assert texts == [False, True]


def test_refused():
    with pytest.raises(DTypeError, match="takes float32 and float64, got int32"):
        extremes.extreme(np.zeros(3, np.int32), [0], least=False)
    with pytest.raises(ShapeError, match=r"expected numbers to choose from, got shape \(0, 3\)"):
        extremes.extreme(np.zeros((0, 3), np.float32), [0], least=False)
