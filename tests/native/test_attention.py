import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native import formulas
from tests.native.formulas import close, draw
from weft.errors import ShapeError
from weft.ops._kernels import attention

time = st.sampled_from([1, 2, 7, 16, 31, 33, 64, 127, 128, 129, 200, 270])
features = st.sampled_from([1, 3, 8, 16, 17, 32, 40, 64, 70])


def check(q, k, v, causal, scale, eps=3e-5):
    wide = [x.astype(np.float64) for x in (q, k, v)]
    out, lse = attention.attention(q, k, v, causal, scale)
    expected = formulas.attention(*wide, causal, scale)
    close(out, expected[0], eps)
    close(lse, expected[1], eps)
    g = draw(9, *q.shape)
    results = attention.attention_backward(g, out, lse, q, k, v, causal, scale)
    for result, gradient in zip(results, formulas.attention_backward(g, *wide, causal, scale), strict=True):
        close(result, gradient, 4 * eps)


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), time, time, features, st.booleans())
def test_attention(batch, shared, group, queries, keys, features, causal):
    q = draw(1, batch, shared * group, queries, features)
    k, v = draw(2, batch, shared, keys, features), draw(3, batch, shared, keys, features)
    check(q, k, v, causal, features**-0.5)


@pytest.mark.parametrize("causal", [False, True])
def test_large_scores(causal):
    """Exponentials of scores themselves would overflow."""
    check(8 * draw(1, 1, 2, 300, 16), 8 * draw(2, 1, 2, 300, 16), draw(3, 1, 2, 300, 16), causal, 1.0, 1e-3)


def test_keys_that_are_minus_infinity():
    """Such scores have no weight, also where the whole first block of keys has them."""
    q, k, v = np.ones((1, 1, 5, 4), np.float32), draw(2, 1, 1, 200, 4), draw(3, 1, 1, 200, 4)
    k[:, :, :150] = -np.inf
    out, lse = attention.attention(q, k, v, False, 0.5)
    expected = formulas.attention(*(x.astype(np.float64) for x in (q, k, v)), False, 0.5)
    close(out, expected[0])
    close(lse, expected[1])


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_reach_who_sees_them(special):
    q, k, v = draw(1, 1, 1, 40, 8), draw(2, 1, 1, 40, 8), draw(3, 1, 1, 40, 8)
    q[0, 0, 7, 2] = special
    out, lse = (np.asarray(x) for x in attention.attention(q, k, v, True, 0.5))
    assert np.isnan(out[0, 0, 7]).all()
    assert np.isfinite(np.delete(out, 7, 2)).all()
    assert np.isfinite(np.delete(lse, 7, 2)).all()


def test_no_keys():
    out, _ = attention.attention(draw(1, 1, 2, 3, 4), draw(2, 1, 2, 0, 4), draw(3, 1, 2, 0, 4), False, 1.0)
    assert not np.asarray(out).any()


@pytest.mark.parametrize("empty", [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 3, 0)])
def test_empty(empty):
    out, lse = attention.attention(*(np.zeros(empty, np.float32),) * 3, True, 1.0)
    assert out.shape == empty
    assert lse.shape == (*empty[:3], 1)


def test_refused():
    q = draw(1, 1, 3, 4, 8)
    with pytest.raises(ShapeError, match="a multiple of those of the key"):
        attention.attention(q, q[:, :2], q[:, :2], False, 1.0)
