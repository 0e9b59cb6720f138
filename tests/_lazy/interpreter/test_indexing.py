"""Reading and writing at places that are computed, with any dimension numbers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax

from tests._lazy.interpreter.check import DTYPES, Case, bfloat16, check, numbers

MODES = ["clip", "fill", "promise_in_bounds"]


@st.composite
def windows(draw):
    """An operand, the dimension numbers of a gather, the sizes of windows, and indices: some outside."""
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(ndim)]
    roles = [draw(st.sampled_from(["batching", "single", "window", "whole"])) for _ in shape]
    indexed = [d for d, role in enumerate(roles) if role in ("single", "window")]
    batching = [d for d, role in enumerate(roles) if role == "batching"]
    sizes = [
        {"single": 1, "batching": 1, "whole": n}.get(role) or draw(st.integers(0, n))
        for n, role in zip(shape, roles, strict=True)
    ]
    batch = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    places = []
    for d in batching:
        at = draw(st.integers(0, len(batch)))
        batch.insert(at, shape[d])
        places = [p + (p >= at) for p in places] + [at]
    offsets = [d for d, role in enumerate(roles) if role in ("window", "whole")]
    rank = len(batch) + len(offsets)
    offset_dims = sorted(draw(st.permutations(range(rank)))[: len(offsets)])
    index_map = draw(st.permutations(indexed))
    indices = np.array(
        draw(
            st.lists(
                st.integers(-2, 5),
                min_size=int(np.prod(batch)) * len(indexed),
                max_size=int(np.prod(batch)) * len(indexed),
            )
        ),
        np.int32,
    )
    collapsed = [d for d, role in enumerate(roles) if role == "single"]
    return shape, sizes, indices.reshape(*batch, len(indexed)), offset_dims, collapsed, index_map, batching, places


def as_gather(w):
    _, _, _, offset_dims, collapsed, index_map, batching, places = w
    return lax.GatherDimensionNumbers(*map(tuple, (offset_dims, collapsed, index_map, batching, places)))


def as_scatter(w):
    _, _, _, offset_dims, collapsed, index_map, batching, places = w
    return lax.ScatterDimensionNumbers(*map(tuple, (offset_dims, collapsed, index_map, batching, places)))


def inside(w):
    shape, sizes, indices, _, _, index_map, _, _ = w
    limits = np.array([shape[d] - sizes[d] for d in index_map], np.int32)
    return np.clip(indices, 0, limits) if len(limits) else indices


@given(windows())
def test_gather(w):
    shape, sizes, indices, *_ = w
    x = numbers(np.float32, *shape)
    check(
        [
            Case(
                f"{mode} {as_gather(w)}",
                lambda x, i, m=mode: lax.gather(x, i, as_gather(w), sizes, mode=m),
                [x, inside(w) if mode == "promise_in_bounds" else indices],
            )
            for mode in MODES
        ]
    )


@given(windows(), st.sampled_from(MODES))
def test_scatter(w, mode):
    shape, sizes, indices, *_ = w
    assume(indices.shape[-1])  # XLA writes once what comes several times without an index
    x = numbers(np.float32, *shape)
    out = lax.gather(jnp.asarray(x), jnp.asarray(indices), as_gather(w), sizes, mode="clip").shape
    updates = numbers(np.float32, *out, seed=1)
    functions = [lax.scatter, lax.scatter_add, lax.scatter_mul, lax.scatter_min, lax.scatter_max]
    indices = inside(w) if mode == "promise_in_bounds" else indices
    check(
        [
            Case(
                f"{f.__name__} {mode} {as_scatter(w)}",
                lambda x, i, u, f=f: f(x, i, u, as_scatter(w), mode=mode),
                [x, indices, updates],
                4,
            )
            for f in functions
        ]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype):
    x, at, two = numbers(dtype, 4, 3), np.array([2, 0, 9, -9, 2]), np.array([1, 0])
    rows = numbers(dtype, 5, 3, seed=1)
    add = (
        ()
        if dtype.kind == "b"
        else (
            Case("add", lambda x, u: x.at[at].add(u), [x, rows], 4, False),
            Case("subtract", lambda x, u: x.at[at].subtract(u), [x, rows], 4, False),
            Case("multiply", lambda x, u: x.at[at].multiply(u), [x, rows], 8, False),
        )
    )
    check(
        [
            *[Case(f"take {m}", lambda x, m=m: jnp.take(x, at, 0, mode=m), [x]) for m in ("clip", "fill", "wrap")],
            Case("another dim", lambda x: x[:, two], [x]),
            Case("single places", lambda x: x[two, two], [x]),
            Case("along", lambda x: jnp.take_along_axis(x, at[:4, None] % 3, 1), [x]),
            Case("write", lambda x, u: x.at[at].set(u), [x, rows]),
            Case("write one", lambda x, u: x.at[1].set(u[0]), [x, rows]),
            Case("write part", lambda x, u: x.at[:, 1:].set(u[:4, 1:]), [x, rows]),
            Case("unsigned", lambda x: x[at.astype(np.uint8)], [x]),
            *add,
            Case("slice", lambda x, i: lax.dynamic_slice(x, (i, i * 0 + 1), (2, 2)), [x, np.int32(7)]),
            Case("update", lambda x, i: lax.dynamic_update_slice(x, x[:2, :2], (i, i * 0 + 1)), [x, np.int64(-3)]),
            Case("unsigned update", lambda x, i: lax.dynamic_update_slice(x, x[:2, :2], (i, i)), [x, np.uint8(250)]),
        ]
    )


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
def test_repeated_sums_add_up_in_order(dtype):
    at, updates = np.arange(300) % 3, (numbers(np.float32, 300) * 100).astype(dtype)
    check([Case("add", lambda u: jnp.zeros(4, dtype).at[at].add(u), [updates])])


def test_no_input_is_written():
    x = np.zeros((4, 3), np.float32)
    check([Case("set", lambda x: x.at[2].set(1), [x]), Case("add", lambda x: x.at[np.array([1, 2])].add(1), [x])])
    assert not x.any()
