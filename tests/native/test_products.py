import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.native.formulas import close, draw
from weft._lazy.aval import aval_of
from weft._lazy.call import ONE
from weft._lazy.form import Form
from weft._lazy.infer import call_of, signature_of
from weft._lazy.signature import structs_of
from weft._lazy.trace import traced
from weft.errors import DTypeError, ShapeError
from weft.ops._jax import equations_of
from weft.ops._kernels import library, product
from weft.ops._native import serving
from weft.ops._table import TABLE

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


def rounded(result, a, b, bias=0.0):
    """`result`, in bfloat16, is a b + bias but for one rounding and that of sums in float32."""
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64)) + np.asarray(bias, np.float64)
    terms = np.matmul(abs(a.astype(np.float64)), abs(b.astype(np.float64))) + abs(np.asarray(bias, np.float64))
    assert result.dtype == jnp.bfloat16
    assert result.shape == exact.shape
    bound = 2**-8 * abs(exact) + 2**-20 * terms
    assert (abs(np.asarray(result, np.float64) - exact) <= bound).all()


@pytest.fixture
def bfloat16():
    if not library.has_bfloat16():
        pytest.skip("this CPU has no instructions for bfloat16")
    return ml_dtypes.bfloat16


@given(size, size, size, st.booleans(), st.booleans(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bfloat16(bfloat16, m, n, k, ta, tb, biased):
    a, b = draw(1, *((k, m) if ta else (m, k)), dtype=bfloat16), draw(2, *((n, k) if tb else (k, n)), dtype=bfloat16)
    bias = draw(3, n, dtype=bfloat16) if biased else None
    result = product.matmul(jnp.asarray(a), jnp.asarray(b), ta, tb, None if bias is None else jnp.asarray(bias))
    rounded(result, a.T if ta else a, b.T if tb else b, 0.0 if bias is None else bias)


def test_batches_of_bfloat16(bfloat16):
    a, b = draw(1, 3, 70, 300, dtype=bfloat16), draw(2, 3, 90, 300, dtype=bfloat16)
    rounded(product.matmul(a, b, transpose_b=True), a, np.swapaxes(b, -1, -2))


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


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False)])
def test_how_a_product_is_cut_changes_no_bit(ta, tb):
    a, b = draw(1, *((300, 700) if ta else (700, 300))), draw(2, *((1000, 300) if tb else (300, 1000)))
    whole = product.matmul(a, b, ta, tb)
    rows, columns = slice(100, 500), slice(48, 333)
    a, b = a[:, rows] if ta else a[rows], b[columns] if tb else b[:, columns]
    np.testing.assert_array_equal(product.matmul(a, b, ta, tb), whole[rows, columns])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [7, 19])
def test_special_values_reach_their_rows_and_columns_alone(special, rows, dtype):
    if dtype is ml_dtypes.bfloat16 and not library.has_bfloat16():
        pytest.skip("this CPU has no instructions for bfloat16")
    a, b = draw(1, rows, 21, dtype=dtype), draw(2, 21, 35, dtype=dtype)
    a[3, 4], b[20, 34] = special, special
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    eps = 1e-2 if dtype is ml_dtypes.bfloat16 else 3e-5
    close(product.matmul(a, b), expected, eps)
    close(product.matmul(a, np.ascontiguousarray(b.T), transpose_b=True), expected, eps)
    close(product.matmul(np.ascontiguousarray(a.T), b, transpose_a=True), expected, eps)


def test_under_jit_with_donated_and_sliced_arguments():
    a, b = draw(1, 33, 33), draw(2, 40, 33)
    run = jax.jit(lambda a, b: product.matmul(a, b[7:]), donate_argnums=0)
    close(run(jnp.asarray(a), jnp.asarray(b)), a.astype(np.float64) @ b[7:])


def test_unaligned_memory():
    flat = draw(1, 33 * 17 + 1)
    a = flat[1:].reshape(33, 17)
    assert a.ctypes.data % 64
    close(product.matmul(jnp.asarray(a), jnp.asarray(a), transpose_b=True), a.astype(np.float64) @ a.T)


ROWS = [
    # row, shapes of its arrays, its numbers
    ("linear", [(3, 20, 40), (50, 40), (50,)], {}),
    ("linear", [(60, 40), (50, 40)], {}),
    ("mm", [(300, 40), (40, 50)], {}),
    ("bmm", [(3, 60, 40), (3, 40, 50)], {}),
    ("matmul", [(2, 130, 40), (40, 50)], {}),
    ("matmul", [(2, 3, 60, 40), (2, 3, 40, 50)], {}),
    ("addmm", [(50,), (300, 40), (40, 50)], {"beta": 0.5, "alpha": 2.0}),
    ("addmm", [(300, 50), (300, 40), (40, 50)], {}),
    ("baddbmm", [(60, 1), (3, 60, 40), (3, 40, 50)], {"beta": 2}),
]


@pytest.mark.parametrize(("name", "shapes", "numbers"), ROWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_rows(name, shapes, numbers, dtype):
    """Values and gradients are those of the row's own body."""
    if dtype is ml_dtypes.bfloat16 and not library.has_bfloat16():
        pytest.skip("this CPU has no instructions for bfloat16")
    row = TABLE[name]
    arrays = [jnp.asarray(draw(i, *shape, dtype=dtype)) for i, shape in enumerate(shapes)]
    native = serving(row.native, "cpu", arrays, numbers)
    assert native is not None
    assert native.vjp is not None
    out, back = jax.vjp(lambda *x: row.impl(*x, **numbers), *arrays)
    g = jnp.asarray(draw(9, *out.shape, dtype=dtype))
    result = native.impl(*arrays, **numbers)
    eps = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-2}[out.dtype.name]
    assert result.dtype == out.dtype
    close(result, out, eps)
    gradients = [x for x in native.vjp(g, result, *arrays, **numbers) if x is not None]
    for ours, other in zip(gradients, back(g), strict=True):
        assert ours.dtype == other.dtype
        close(ours, other, eps)


def test_calls_that_rows_keep():
    x = jnp.zeros((60, 40))
    for name, arrays in [
        ("linear", [x[:2], x[:2]]),  # small
        ("mm", [x, x.T]),  # few rows
        ("mm", [x.astype(jnp.int32), x.T.astype(jnp.int32)]),
        ("matmul", [x, x[0]]),
        ("matmul", [x, jnp.stack([x.T, x.T])]),
        ("linear", [x, x, jnp.zeros(())]),
    ]:
        assert serving(TABLE[name].native, "cpu", arrays, {}) is None


def test_kernels_read_what_others_return():
    """A barrier after a kernel would be a loop of its own over the array; after a sum it is needed."""
    f32 = weft.float32
    avals = (aval_of((4, 64, 256), f32), aval_of((256, 256), f32), aval_of((256,), f32))
    layer = signature_of(call_of(TABLE["linear"], (ONE, ONE, ONE)), avals)
    total = signature_of(call_of(TABLE["add"], (ONE, ONE, 1)), (layer.outputs[0].aval, avals[0]))
    steps = ((layer, (0, 1, 2), [(3, 0)]), (layer, (3, 1, 2), [(4, 0)]))
    assert "select_n" not in _primitives(Form(steps, (0, 1, 2), (4,)), avals)
    between = (total, (3, 0), [(4, 0)]), (layer, (4, 1, 2), [(5, 0)])
    assert _primitives(Form((*steps[:1], *between), (0, 1, 2), (5,)), avals).count("select_n") == 1


def _primitives(form, avals):
    return [eqn.primitive.name for eqn in equations_of(traced(form.function(), structs_of(avals)).closed)]


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
