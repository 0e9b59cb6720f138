"""Arithmetic, comparisons, conversions and special functions, at numbers that matter."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests._lazy.interpreter.check import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    SIGNED,
    Case,
    check,
    interpret,
    nasty,
    pairs,
)

ids = str


def cases(names: str, *arrays: np.ndarray, ulps: float = 0) -> Iterator[Case]:
    for name in names.split():
        yield Case(name, getattr(lax, name), arrays, ulps)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=ids)
def test_arithmetic(dtype):
    x, y = pairs(nasty(dtype))
    check(
        [
            *cases("add sub mul div rem max min eq ne lt le gt ge", x, y),
            *cases("neg sign square", nasty(dtype)),
            Case("clamp", lax.clamp, [x, np.roll(y, 3), y]),
            *[Case(f"integer_pow[{n}]", lambda x, n=n: lax.integer_pow(x, n), [nasty(dtype)]) for n in (0, 1, 2, 3, 7)],
        ]
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=ids)
def test_bits(dtype):
    x, y = pairs(nasty(dtype))
    shifts = "shift_left shift_right_logical shift_right_arithmetic"
    check(
        [
            *cases(f"bitwise_and bitwise_or bitwise_xor {shifts}", x, y),
            *cases("bitwise_not population_count clz", nasty(dtype)),
            *(cases("abs", x) if dtype in SIGNED else ()),
        ]
    )


def test_bools():
    x, y = pairs(nasty(bool))
    check([*cases("bitwise_and bitwise_or bitwise_xor max min eq ne lt le", x, y), *cases("bitwise_not", x)])


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_functions_that_round_exactly(dtype):
    x, y = pairs(nasty(dtype))
    formats = [(8, 7), (5, 10), (4, 3), (8, 23), (11, 52), (5, 2)]
    check(
        [
            *cases("abs floor ceil is_finite sqrt", nasty(dtype)),
            *cases("nextafter", x, y),
            *[
                Case(f"round {method.name}", lambda x, m=method: lax.round(x, m), [nasty(dtype)])
                for method in lax.RoundingMethod
            ],
            *[Case(f"integer_pow[{n}]", lambda x, n=n: lax.integer_pow(x, n), [nasty(dtype)]) for n in (-1, -2, -3)],
            *[
                Case(f"reduce_precision{f}", lambda x, f=f: lax.reduce_precision(x, *f), [nasty(dtype)])
                for f in formats
            ],
        ]
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_transcendental_functions(dtype):
    x, y = pairs(nasty(dtype))
    check(
        [
            *cases("pow atan2", x, y, ulps=8),
            Case(
                "pow of an integer", lax.pow, [nasty(dtype), np.resize(np.array([-3, 0, 2, 5]), nasty(dtype).shape)], 8
            ),
            *cases("rsqrt cbrt exp log log1p expm1 tanh sin cos tan logistic asin acos atan", nasty(dtype), ulps=32),
            *cases("sinh cosh asinh acosh atanh", nasty(dtype), ulps=64),
            *cases("exp2", np.linspace(-8, 8, 33).astype(dtype), ulps=32),  # XLA's is off by 1e-4 beyond
        ]
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_special_functions(dtype):
    x = np.array([-2.5, -1.5, -0.99, -0.3, -0.0, 0.0, 0.02, 0.5, 0.99, 1.0, 1.5, 2.5, 9, 30, np.inf, np.nan]).astype(
        dtype
    )
    a, b = pairs(np.array([0.3, 1, 2.5, 7]).astype(dtype))
    part = np.resize(np.array([0.1, 0.5, 0.9]), a.shape).astype(dtype)
    check(
        [
            *[
                case._replace(relative=False)
                for case in cases("erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e", x, ulps=64)
            ],
            *cases("igamma igammac zeta", a, b + 1, ulps=64),
            Case("polygamma", lax.polygamma, [np.resize(np.array([0, 1, 2, 3]), a.shape).astype(dtype), a], 256),
            Case("betainc", lax.betainc, [a, b, part], 256),
        ]
    )


@pytest.mark.parametrize("dtype", COMPLEX, ids=ids)
def test_complex_numbers(dtype):
    x, y = pairs(nasty(dtype)[::5])
    plain = nasty(dtype)
    parts = plain.real.copy(), plain.imag.copy()
    check(
        [
            *cases("add sub eq ne", x, y),
            Case("mul", lax.mul, [x, y], 4, False),
            Case("div", lax.div, [x, np.where(y == 0, 1, y)], 16, False),
            *cases("real imag conj neg", plain),
            Case("square", lax.square, [plain], 4, False),
            *[
                case._replace(relative=False)
                for case in cases(
                    "abs exp log sin cos tanh sqrt log1p expm1 sinh cosh logistic sign", plain[7:], ulps=64
                )
            ],
            Case("complex", lax.complex, parts),
            Case("conj of real numbers", lambda x: lax.conj_p.bind(x, input_dtype=x.dtype), parts[:1]),
            Case("integer_pow", lambda x: lax.integer_pow(x, 3), [plain], 16, False),
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_conversions(dtype):
    check(
        [
            *[
                Case(str(other), lambda x, t=other: lax.convert_element_type(x, t), [nasty(dtype)])
                for other in DTYPES
                if dtype.kind != "c" or other.kind == "c"
            ],
            Case("of one number", lambda x: lax.convert_element_type(x, jnp.complex64), [nasty(dtype)[0]]),
        ]
    )


def test_bits_as_other_types():
    types = [np.uint8, np.int16, np.float16, np.uint32, np.float32, np.float64, np.uint64]
    bits = np.arange(16, dtype=np.uint8).reshape(2, 8) * 17

    def as_type(x, dtype, width):
        parts = x.reshape(2, 8 // width, width) if width > 1 else x
        return lax.bitcast_convert_type(parts, dtype)

    def from_type(x, dtype, width):
        return lax.bitcast_convert_type(as_type(x, dtype, width), np.uint8)

    check(
        [
            Case(f"{f.__name__} {t}", lambda x, f=f, t=t: f(x, t, np.dtype(t).itemsize), [bits])
            for t in types
            for f in (as_type, from_type)
        ]
    )


@pytest.mark.parametrize("dtype", [np.dtype(np.int32), *FLOATS], ids=ids)
def test_total_order(dtype):
    x, y = pairs(nasty(dtype))
    names = [lax.eq_to_p, lax.lt_to_p, lax.le_to_p] if hasattr(lax, "lt_to_p") else []
    check([Case(p.name, lambda x, y, p=p: p.bind(x, y), [x, y]) for p in names])


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_choices(dtype):
    x = nasty(dtype)
    which = np.arange(x.size) % 2 == 0
    check(
        [
            Case("by bools", lax.select_n, [which, x, x[::-1].copy()]),
            Case("by one bool", lambda w, x, y: lax.select_n(w, x, y), [np.array(True), x, x[::-1].copy()]),
            Case(
                "by integers",
                lax.select_n,
                [(np.arange(x.size) % 3).astype(np.int32), x, x[::-1].copy(), np.roll(x, 1)],
            ),
            Case("where", lambda w, x: jnp.where(w, x, 0), [which, x]),
        ]
    )


def test_what_is_broadcast_by_numpy_has_the_right_shape():
    x, row, column = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32), np.arange(3, dtype=np.float32)
    check(
        [
            Case("row and column", lambda r, c: r + c[:, None], [row, column]),
            Case("kept", lambda r: jnp.broadcast_to(r, (3, 4)), [row]),
            Case("both", lambda r: jnp.broadcast_to(r, (3, 4)) * jnp.broadcast_to(r + 1, (3, 4)), [row]),
            Case("read twice", lambda x, r: (x + r, jnp.broadcast_to(r, (3, 4)).sum(0)), [x, row]),
            Case("one number", lambda x, s: jnp.where(x > s, s, x * s), [x, np.float32(0.5)]),
            Case(
                "twice over", lambda x, s: x + jnp.broadcast_to(jnp.broadcast_to(s, (4,)), (3, 4)), [x, np.float32(2)]
            ),
            Case("converted", lambda x, r: x + jnp.broadcast_to(r, (3, 4)).astype(np.float32), [x, np.arange(4)]),
            Case("alone", lambda s: -jnp.broadcast_to(s, (2, 3)), [np.float32(1)]),
        ]
    )


def test_results_without_dims_are_arrays():
    for result in interpret(lambda x: (x + 1, x.sum(), jnp.sin(x), x * 0 == 0, x.astype(int)), np.float32(2)):
        assert type(result) is np.ndarray
        assert result.shape == ()


def test_16_bit_floats_are_rounded_after_every_primitive():
    x = np.linspace(0.1, 3, 50).astype(jnp.bfloat16)
    check([Case("chain", lambda x: jax.nn.relu((x * x + x) / 3 - x) * x, [x])])
