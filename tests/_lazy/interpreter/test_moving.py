"""Shapes, slices, padding and what is put together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests._lazy.interpreter.check import DTYPES, Case, bfloat16, check, numbers
from weft._lazy.interpreter import prepare

SHAPES = [(), (0,), (3,), (2, 0, 3), (2, 3, 4)]


@pytest.mark.parametrize("dtype", [np.dtype(bool), np.dtype(np.int8), bfloat16, np.dtype(np.complex64)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape(shape, dtype):
    x = numbers(dtype, *shape)
    ndim = len(shape)
    dims = range(ndim)
    check(
        [
            Case("reshape", lambda x: lax.reshape(x, (x.size,)), [x]),
            Case("expand", lambda x: x[None, ..., None], [x]),
            Case("squeeze", lambda x: lax.squeeze(x[None, ..., None], (0, ndim + 1)), [x]),
            Case("transpose", lambda x: lax.transpose(x, tuple(reversed(dims))), [x]),
            Case("broadcast", lambda x: jnp.broadcast_to(x, (2, *shape)), [x]),
            Case("broadcast in front", lambda x: lax.broadcast_in_dim(x, (*shape, 3), tuple(dims)), [x]),
            Case("broadcast transposed", lambda x: jnp.broadcast_to(x.T, (2, *shape[::-1])), [x]),
            Case("rev", lambda x: lax.rev(x, tuple(dims)), [x]),
            Case("copy", lambda x: x.copy(), [x]),
            Case("stack", lambda x: jnp.stack([x, x[::-1] if ndim else x], axis=ndim), [x]),
            Case("repeat", lambda x: jnp.tile(x, 2), [x]),
            Case("slice", lambda x: x[1:] if ndim else x, [x]),
            *(
                [
                    Case("concatenate", lambda x: lax.concatenate([x, x, x[:1]], 0), [x]),
                    Case("split", lambda x: lax.split(x, (1, shape[0] - 1) if shape[0] else (0, 0)), [x]),
                    Case("unstack", lambda x: tuple(x), [x]),
                ]
                if ndim
                else []
            ),
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_iota(dtype):
    check([Case("last", lambda: lax.broadcasted_iota(dtype, (2, 3), 1), []), Case("0", lambda: lax.iota(dtype, 0), [])])


@st.composite
def paddings(draw):
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    config = []
    for size in shape:
        inside = draw(st.integers(0, 2))
        spread = max(0, size + max(size - 1, 0) * inside)
        low = draw(st.integers(-spread, 3))
        config.append((low, draw(st.integers(-min(spread + low, spread), 3)), inside))
    return numbers(np.float32, *shape), tuple(config)


@given(paddings())
def test_pad(given_padding):
    x, config = given_padding
    check([Case(str(config), lambda x: lax.pad(x, np.float32(7), config), [x])])


@st.composite
def slices(draw):
    shape = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    starts = [draw(st.integers(0, size)) for size in shape]
    limits = [draw(st.integers(start, size)) for start, size in zip(starts, shape, strict=True)]
    strides = draw(st.one_of(st.none(), st.tuples(*[st.integers(1, 3) for _ in shape])))
    return numbers(np.int16, *shape), starts, limits, strides


@given(slices())
def test_slice(given_slice):
    x, starts, limits, strides = given_slice
    check([Case(str(given_slice[1:]), lambda x: lax.slice(x, starts, limits, strides), [x])])


def test_a_reshape_may_read_the_dims_in_another_order():
    x = np.arange(9.0).reshape(3, 3)
    closed = jax.make_jaxpr(lambda x: jax.lax.reshape(x, (3, 3), dimensions=(1, 0)))(x)
    assert np.array_equal(prepare(closed)(x)[0], x.T)
    closed = jax.make_jaxpr(lambda x: jax.lax.reshape(x, (9,), dimensions=(1, 0)))(x)
    assert np.array_equal(prepare(closed)(x)[0], x.T.reshape(9))
