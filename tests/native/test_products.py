import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.formulas import close, draw
from weft.errors import DTypeError, ShapeError
from weft.ops._kernels import product

size = st.sampled_from([0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 63, 65, 100, 130, 257])


@given(size, size, size, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_product(m, n, k, ta, tb, biased, dtype):
    a, b = draw(1, *((k, m) if ta else (m, k)), dtype=dtype), draw(2, *((n, k) if tb else (k, n)), dtype=dtype)
    bias = draw(3, n, dtype=dtype) if biased else None
    result = product.matmul(jnp.asarray(a), jnp.asarray(b), ta, tb, None if bias is None else jnp.asarray(bias))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    expected = (wide_a.T if ta else wide_a) @ (wide_b.T if tb else wide_b) + (0 if bias is None else bias)
    assert result.dtype == dtype
    close(result, expected, 3e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(32, 256, 256), (512, 128, 2048), (2048, 128, 512), (600, 200, 300)])
def test_shapes_of_training(m, n, k, ta, tb):
    a, b = draw(1, *((k, m) if ta else (m, k))), draw(2, *((n, k) if tb else (k, n)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    close(product.matmul(a, b, ta, tb), (wide_a.T if ta else wide_a) @ (wide_b.T if tb else wide_b))


def test_batches():
    a, b = draw(1, 2, 3, 20, 33), draw(2, 2, 3, 50, 33)
    close(product.matmul(a, b, transpose_b=True), np.matmul(a.astype(np.float64), np.swapaxes(b, -1, -2)))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_reach_their_rows_and_columns_alone(special):
    a, b = draw(1, 19, 21), draw(2, 21, 35)
    a[3, 4], b[20, 34] = special, special
    with np.errstate(invalid="ignore"):
        close(product.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64))


def test_under_jit_with_donated_and_sliced_arguments():
    a, b = draw(1, 33, 33), draw(2, 40, 33)
    run = jax.jit(lambda a, b: product.matmul(a, b[7:]), donate_argnums=0)
    close(run(jnp.asarray(a), jnp.asarray(b)), a.astype(np.float64) @ b[7:])


def test_unaligned_memory():
    flat = draw(1, 33 * 17 + 1)
    a = flat[1:].reshape(33, 17)
    assert a.ctypes.data % 64
    close(product.matmul(jnp.asarray(a), jnp.asarray(a), transpose_b=True), a.astype(np.float64) @ a.T)


def test_refused():
    a = jnp.zeros((2, 3))
    with pytest.raises(ShapeError, match="3 columns of the first matrices do not meet 2 rows"):
        product.matmul(a, a)
    with pytest.raises(ShapeError, match="equal batches"):
        product.matmul(a, a[None])
    with pytest.raises(ShapeError, match=r"bias has shape \(3,\), expected \(2,\)"):
        product.matmul(a, a, transpose_b=True, bias=jnp.zeros(3))
    with pytest.raises(DTypeError, match="int32"):
        product.matmul(a.astype(jnp.int32), a.astype(jnp.int32))
