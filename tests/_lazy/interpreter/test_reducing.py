"""Reductions, running ones, orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests._lazy.interpreter.check import COMPLEX, DTYPES, FLOATS, INTEGERS, Case, bfloat16, check, nasty, numbers

ORDERED = [np.dtype(bool), *INTEGERS, *FLOATS]
INTEGRAL = [np.dtype(bool), *INTEGERS]


def shaped(dtype):
    return numbers(dtype, 3, 4, 5)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
def test_sums(dtype):
    x, empty = shaped(dtype), np.zeros((2, 0, 3), dtype)
    axes = [(), (0,), (1, 2), (0, 1, 2)]
    check(
        [
            Case(f"{f.__name__} {a}", lambda x, f=f, a=a: f(x, a), [array], 64, False)
            for f in (lax.reduce_sum, lax.reduce_prod)
            for a in axes
            for array in (x, empty)
        ]
    )


@pytest.mark.parametrize("dtype", ORDERED, ids=str)
def test_extremes(dtype):
    x = shaped(dtype)
    with_nan = nasty(dtype).reshape(1, -1)
    functions = (lax.reduce_max, lax.reduce_min)
    check(
        [
            *[Case(f.__name__, lambda x, f=f: f(x, (1, 2)), [x]) for f in functions],
            *[
                Case(f"{f.__name__} of nothing", lambda x, f=f: f(x, (1,)), [np.zeros((2, 0), dtype)])
                for f in functions
            ],
            *[Case(f"{f.__name__} with NaN", lambda x, f=f: f(x, (1,)), [with_nan]) for f in functions],
            *[
                Case(f"{f.__name__} {d}", lambda x, f=f, d=d: f(x, 1, d), [array])
                for f in (lax.argmax, lax.argmin)
                for array, d in ((x, np.int32), (with_nan, np.int64), (x * 0, np.uint8))
                if dtype.kind != "b" or array is x
            ],
        ]
    )


@pytest.mark.parametrize("dtype", INTEGRAL, ids=str)
def test_bitwise_reductions(dtype):
    functions = (lax.reduce_and, lax.reduce_or, lax.reduce_xor)
    check(
        [
            Case(f.__name__, lambda x, f=f: f(x, (0, 2)), [x])
            for f in functions
            for x in (shaped(dtype), np.zeros((0, 2, 0), dtype))
        ]
    )


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_running_reductions(dtype, reverse):
    x = shaped(dtype)
    functions = [lax.cumsum, lax.cumprod]
    functions += [] if dtype in COMPLEX else [lax.cummax, lax.cummin]
    functions += [] if dtype in INTEGERS else [lax.cumlogsumexp]
    check([Case(f.__name__, lambda x, f=f: f(x, 1, reverse), [x], 64, False) for f in functions])


def test_reduction_by_any_function():
    x, y = numbers(np.float32, 3, 4), numbers(np.int32, 3, 4)

    def larger(a, b):
        return jnp.where(a[0] > b[0], a[0], b[0]), jnp.where(a[0] > b[0], a[1], b[1])

    check(
        [
            Case("one", lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + a, (1,)), [x], 8),
            Case("two", lambda x, y: lax.reduce((x, y), (np.float32(-9), np.int32(0)), larger, (0,)), [x, y]),
            Case("all dims", lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + a, (0, 1)), [x], 8),
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort(dtype):
    x = np.random.default_rng(0).permutation(np.concatenate([nasty(dtype), nasty(dtype)]))
    matrix, at = shaped(dtype), np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    few = numbers(np.int8, 3, 4, 5) % 2
    check(
        [
            Case("one", lambda x: lax.sort(x), [x]),
            Case("a dim", lambda x: lax.sort(x, dimension=0), [matrix]),
            Case("with places", lambda x, i: lax.sort((x, i), dimension=1), [matrix, at]),
            Case("with places, all", lambda x, i: lax.sort((x, i)), [x, np.arange(x.size)]),
            Case("two keys", lambda k, x, i: lax.sort((k, x, i), num_keys=2), [few, matrix, at]),
        ]
    )


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_top_k(dtype):
    x = np.random.default_rng(0).permutation(np.concatenate([nasty(dtype), nasty(dtype)]))
    matrix = shaped(dtype)
    check(
        [
            Case("all", lambda x: lax.top_k(x, x.size), [x[x != 0]]),
            Case("some", lambda x: lax.top_k(x, 2), [matrix]),
            Case("none", lambda x: lax.top_k(x, 0), [matrix]),
            *([Case("approx_max_k", lambda x: lax.approx_max_k(x, 2), [x[-9:]])] if dtype == np.float32 else ()),
        ]
    )


@pytest.mark.parametrize(
    "left", [np.int8, np.uint8, np.int32, np.float16, bfloat16, np.float32, np.float64, np.complex64]
)
def test_products(left):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(left) for shape in ((2, 3, 4, 5), (5, 4, 2, 6)))
    wider = {np.int8: np.int32, bfloat16: np.float32}.get(left)
    preferred = [None, *([wider] if wider else [])]
    numbers_of = {
        "batch": (((3,), (0,)), ((0,), (2,))),
        "two contracted": (((2, 3), (1, 0)), ((), ())),
        "none contracted": (((), ()), ((0,), (2,))),
        "all": (((2, 3), (1, 0)), ((0,), (2,))),
    }
    vector, matrix = numbers(left, 5), numbers(left, 5, 3)
    check(
        [
            *[
                Case(
                    f"{name} {p}", lambda x, y, n=n, p=p: lax.dot_general(x, y, n, preferred_element_type=p), [x, y], 2
                )
                for name, n in numbers_of.items()
                for p in preferred
            ],
            Case("vectors", lambda x: x @ x, [vector], 16, False),
            Case("matrix and vector", lambda x, y: (x.T @ y, y @ x), [matrix, vector], 16, False),
            Case("of nothing", lambda x: x[:, :0] @ x[:, :0].T, [matrix]),
            Case("broadcast", lambda x, y: jnp.broadcast_to(x[:1], (2, 5)) @ y, [vector, matrix], 16, False),
        ]
    )


def test_products_of_other_types():
    x, y = numbers(bool, 3, 4), numbers(bool, 4, 2)
    check(
        [
            Case("bools", lambda x, y: lax.dot(x, y), [x, y]),
            Case(
                "mixed",
                lambda x, y: lax.dot(x, y, preferred_element_type=np.float32),
                [numbers(np.float32, 3, 4), numbers(bfloat16, 4, 2)],
                8,
                False,
            ),
        ]
    )


def test_a_mean_of_many_is_exact():
    x = np.full((3, 100_000), 0.1, np.float32)
    check([Case("mean", lambda x: jax.numpy.mean(x, 1), [x], 8)])
