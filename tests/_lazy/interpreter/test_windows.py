"""Convolutions and reductions over windows, with any parameters."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax

from tests._lazy.interpreter.check import FLOATS, INTEGERS, Case, bfloat16, check, numbers

SPECS = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("CHWN", "IHWO", "HNWC")]


def _places(spec, batch, channel, space):
    sizes = {
        **dict(zip("NC" if "N" in spec else "OI", (batch, channel), strict=True)),
        **dict(zip("HW", space, strict=True)),
    }
    return [sizes[letter] for letter in spec]


@st.composite
def grids(draw, ndim=2):
    """Sizes of an array and a window, and how the windows lie: some nowhere."""
    two = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(ndim))  # noqa: E731
    space, window = two(1, 6), two(1, 3)
    options = {
        "window_strides": two(1, 3),
        "padding": tuple((draw(st.integers(-2, 3)), draw(st.integers(-2, 3))) for _ in range(ndim)),
    }
    base, dilation = two(1, 3), two(1, 3)
    for n, (low, high), step in zip(space, options["padding"], base, strict=True):
        assume((n - 1) * step + 1 + low + high >= 0 and low > -n and high > -n)
    return space, window, options, base, dilation


@given(
    grids(), st.sampled_from(SPECS), st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.sampled_from([np.float32, np.int32])
)
def test_convolution(grid, specs, groups, dtype):
    space, window, options, base, dilation = grid
    features, batches = groups
    x = numbers(dtype, *_places(specs[0], 2 * batches, 2 * features, space))
    k = numbers(dtype, *_places(specs[1], 2 * features * batches, 2, window), seed=1)

    def convolve(x, k):
        return lax.conv_general_dilated(
            x,
            k,
            **options,
            lhs_dilation=base,
            rhs_dilation=dilation,
            dimension_numbers=specs,
            feature_group_count=features,
            batch_group_count=batches,
        )

    check([Case(str((grid, specs, groups)), convolve, [x, k], 16, False)])


@pytest.mark.parametrize("dtype", [np.int8, np.float16, bfloat16, np.float64, np.complex64])
def test_convolution_of_other_types(dtype):
    x, k = numbers(dtype, 2, 3, 7), numbers(dtype, 4, 3, 3, seed=1)
    wide = np.int32 if dtype == np.int8 else None
    convolve = partial(lax.conv, window_strides=(2,), padding="SAME", preferred_element_type=wide)
    flat = partial(lax.conv_general_dilated, window_strides=(), padding=())
    check(
        [
            Case("one dim", convolve, [x, k], 4, False),
            Case("no dim", flat, [x[..., 0].copy(), k[..., 0].copy()], 4, False),
            *(
                [Case("derivative", jax.grad(lambda x, k: convolve(x, k).sum(), (0, 1)), [x, k], 16, False)]
                if dtype == np.float64
                else ()
            ),
        ]
    )


@given(grids(), st.sampled_from([np.dtype(np.float32), np.dtype(np.int16), bfloat16]))
def test_reductions_over_windows(grid, dtype):
    space, window, options, base, dilation = grid
    x = numbers(dtype, *space)
    zero, one = np.zeros((), dtype), np.ones((), dtype)
    low, high = (-np.inf, np.inf) if dtype != np.int16 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    starts = {
        "sum": (zero, lax.add),
        "max": (np.asarray(low, dtype), lax.max),
        "min": (np.asarray(high, dtype), lax.min),
        "other": (zero, lambda a, b: a + b + a * b),
        "product": (one, lax.mul),
    }

    def reduce(x, start, function):
        return lax.reduce_window(x, start, function, window, **options, base_dilation=base, window_dilation=dilation)

    cases = [
        Case(f"{name} {grid}", partial(reduce, start=start, function=f), [x], 16, False)
        for name, (start, f) in starts.items()
        if name != "other" or dtype == np.float32
    ]
    check(cases[:3] if dtype == bfloat16 else cases)


@pytest.mark.parametrize("dtype", [*FLOATS, INTEGERS[2]], ids=str)
def test_window_that_chooses(dtype):
    x = numbers(dtype, 2, 6, 7)

    def pool(x, padding):
        start = np.asarray(-np.inf if dtype in FLOATS else np.iinfo(dtype).min, dtype)
        return lax.reduce_window(x, start, lax.max, (1, 3, 2), (1, 2, 2), padding)

    def backward(x, padding):
        return jax.grad(lambda x: (pool(x, padding) * 2).sum().astype(jnp.float32))(x)

    forward = lambda x, padding: jax.jvp(lambda x: pool(x, padding), (x,), (x * 2,))[1]  # noqa: E731
    functions = [pool, backward, forward] if dtype in FLOATS[2:] else [pool]
    check([Case(f"{f.__name__} {p}", partial(f, padding=p), [x], 2) for f in functions for p in ("SAME", "VALID")])
