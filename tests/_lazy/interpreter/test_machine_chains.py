"""Chains in which rows are reduced: they go over whole rows, of which some steps have one element each."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests._lazy.interpreter.check import bfloat16, numbers
from tests._lazy.interpreter.test_machine import filled, same
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built")

# Rows of which many, a few, one and none fit into a tile, and one that is too long to be in cache.
SHAPES = [(4096, 3), (70, 130), (5, 1, 9, 257), (64, 2048), (3, 5000), (2, 40_000), (1, 9000), (9000, 1), (0, 5000)]


def softmax(x):
    y = jnp.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * x[:1] + 1, variance


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms_of_rows(shape, dtype):
    x = filled(np.dtype(dtype), shape)
    for function in (softmax, layer_norm):
        same(function, x)
        same(lambda x, f=function: (f(x * 2 - 1), x.argmax(-1)), x)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.complex64, bool], ids=str)
def test_rows_of_other_numbers(dtype):
    x = numbers(dtype, 70, 130)
    y = numbers(dtype, 70, 1)
    same(lambda x, y: (x.sum(1, keepdims=True) + y, (x == y).any(1), (x == y).all(1, keepdims=True) | (x != y)), x, y)


def test_rows_that_lie_otherwise():
    x = numbers(np.float32, 130, 70)
    same(lambda x: softmax(x.T), x)
    same(lambda x: softmax(x[:, ::-1]), x)
    same(lambda x: softmax(x[::2, 3:]), x)
    same(lambda x: softmax(jnp.broadcast_to(x[:1], (130, 70))), x)


def test_what_a_chain_has_written_is_read_elsewhere():
    """Columns, rows and sums of what an earlier step gives: not all of it is in the tile."""
    x = numbers(np.float32, 128, 64)
    same(lambda x: (x + 1).sum(1) + (x + 1)[:, 0], x)
    same(lambda x: (x * (x + 1).sum(1)[:, None]) - (x + 1)[0], x)
    same(lambda x: x - (x + 1).sum(1)[::-1, None], x)
    same(lambda x: (x + 1).sum(1)[:64] + (x * 2)[:64].sum(0), x)
    same(lambda x: (x + x[:, :1]).sum(1) * x.sum(0).sum(), x)


def test_results_are_those_of_one_thread():
    """Above half a million elements several threads compute, each some of the rows."""
    x = filled(np.dtype(np.float32), (1200, 700))
    same(softmax, x)
    same(lambda x: x.sum(1), x)
    same(lambda x: x.max(1), x)
    same(layer_norm, x)


@given(st.data())
def test_programs_over_rows(data):
    """Whole arrays and columns, combined at random; any of them may be a result."""
    shape = data.draw(st.sampled_from([(64, 65), (130, 37), (2, 2500), (7, 11, 60)]))
    picks = data.draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99), st.integers(0, 99)), max_size=12))
    wanted = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=4))

    def program(x):
        values = [x, x[..., :1]]
        for pick, a, b in picks:
            one, two = values[a % len(values)], values[b % len(values)]
            match pick:
                case 0:
                    values.append(one.sum(-1, keepdims=True))
                case 1:
                    values.append(one.max(-1, keepdims=True))
                case 2:
                    values.append(jnp.exp(one))
                case 3:
                    values.append(one[..., -1:])
                case 4:
                    values.append(one * two.sum(0))
                case _:
                    values.append(one - two)
        return [values[at % len(values)] for at in wanted]

    same(program, numbers(np.float32, *shape))
