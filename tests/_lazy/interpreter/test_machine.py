"""The machine computes what the interpreter computes, to the last bit, from the same table."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests._lazy.interpreter.check import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    bfloat16,
    difference_in_bits,
    nasty,
    numbers,
)
from weft._base.interrupts import received, uninterrupted
from weft._lazy import runtime as runtime  # sets jax up as programs expect it
from weft._lazy.interpreter import prepare
from weft._lazy.interpreter.machine import machine_for
from weft._lazy.interpreter.probe import Tracing
from weft._lazy.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built")

SIZES = [0, 1, 7, 4096, 8193, 65537]


def machine(function, *arrays):
    prepared = prepare(jax.make_jaxpr(function)(*arrays))
    assert prepared is not None
    return machine_for(prepared), prepared


def same(function, *arrays):
    """Check a function on arrays; returns the names of what the machine calls."""
    run, prepared = machine(function, *arrays)
    dense = [np.asarray(x, order="C") for x in arrays]
    for got, want in zip(run(arrays), prepared(*dense), strict=True):
        assert not difference_in_bits(got, want)
    return [getattr(function, "__qualname__", str(function)) for function in run.calls()]


def filled(dtype, size, seed=0):
    """Numbers of all kinds, as many as asked for."""
    mixed = np.concatenate([nasty(dtype), numbers(dtype, 97, seed=seed), nasty(dtype)[::-1]])
    return np.resize(mixed, size).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_chains_of_any_length(dtype, size):
    def chain(x, y):
        z = jnp.tanh(x * y + 1) - jnp.exp(-x) / (y * y + 2)
        return jnp.where(z > x, z, lax.max(x, y)) * 3, z, jnp.log(z) + jnp.sin(x)

    assert same(chain, filled(dtype, size), filled(dtype, size, seed=1)) == []


@pytest.mark.parametrize("dtype", [np.dtype(bool), *INTEGERS, *COMPLEX], ids=str)
def test_chains_of_other_numbers(dtype):
    def chain(x, y):
        z = lax.bitwise_xor(x, y) if dtype.kind in "biu" else x * y - x
        return z, lax.eq(z, x), lax.select(lax.ne(x, y), z, y)

    assert same(chain, filled(dtype, 65537), filled(dtype, 65537, seed=1)) == []


@pytest.mark.parametrize(("rows", "columns"), [(1, 9000), (9000, 1), (3, 5000), (5000, 3), (64, 64), (300, 257)])
def test_rows_and_columns_are_broadcast(rows, columns):
    x = numbers(np.float32, rows, columns)
    row, column = x[0].copy(), x[:, :1].copy()
    assert same(lambda x, r, c: ((x - c) * r + 1) ** 2 / (c + 3) - x, x, row, column) == []


@pytest.mark.parametrize("shape", [(6, 70, 50), (5, 1, 7), (2, 0, 3), (20_000,)])
def test_steps_that_go_through_memory_otherwise(shape):
    x = numbers(np.float32, *shape)
    same(lambda x: (x.T + 1) * 2 - x.T, x)
    same(lambda x: lax.rev(x, (0,)) * x + lax.rev(x * 2, (0,)), x)
    same(lambda x: jnp.sum((x.T * 3 + 1), axis=0), x)
    same(lambda x: jnp.cumsum(x.T + 1, axis=0).sum(-1), x)
    same(lambda x: (jnp.sort(x, axis=0).T * 2).sum(0), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, bfloat16, np.int32, np.complex64, bool], ids=str)
@pytest.mark.parametrize("shape", [(3,), (9000,), (70, 130), (4, 5, 6), (3, 1, 2000), (0, 4), (2, 3, 4, 5)])
def test_reductions_over_any_dims(dtype, shape):
    x = numbers(dtype, *shape)
    for axes in {(0,), (len(shape) - 1,), tuple(range(len(shape))), (0, len(shape) - 1), (len(shape) // 2,)}:
        axes = tuple(sorted(set(axes)))
        if np.dtype(dtype) != bool:
            same(lambda x, axes=axes: x.sum(axes), x)
        if np.dtype(dtype).kind != "c" and 0 not in shape:
            same(lambda x, axes=axes: (x.max(axes), x.min(axes)), x)
        same(lambda x, axes=axes: (x != 0).any(axes), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32, bfloat16], ids=str)
def test_products(dtype):
    a, b = numbers(dtype, 5, 7), numbers(dtype, 7, 6)
    batch = numbers(dtype, 3, 5, 7)
    assert same(lambda a, b: a @ b, a, b) == []
    assert same(lambda a, b: (a @ b).T @ a, a, b) == []
    assert same(lambda a: a @ a.T, a) == []
    assert same(lambda x, b: x @ b, batch, b) == []
    same(lambda x: x @ x.swapaxes(1, 2), batch)
    same(lambda x: jnp.einsum("bij,bkj->bik", x, x), batch)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_conversions(source):
    for target in DTYPES:
        if source.kind != "c" or target.kind == "c":
            for size in (1, 33, 9000):
                same(lambda x, t=target: lax.convert_element_type(x, t), filled(source, size))


def test_rows_are_taken():
    x = numbers(np.float32, 9, 5)
    for indices in (np.array([3, 0, 8]), np.array([[1, 20], [-3, 2]]), np.array(4), np.zeros(0, int)):
        for mode in ("fill", "clip", "promise_in_bounds"):
            if mode != "promise_in_bounds" or np.all(np.abs(indices) < 9):
                called = same(lambda x, i, m=mode: x.at[i].get(mode=m), x, indices)
                assert not called or not indices.ndim
    same(lambda x, i: jnp.take(x, i, axis=1), x, np.array([1, 4]))


def test_random_bits():
    for shape in [(), (3,), (33, 65)]:
        for bits in (8, 16, 32, 64):
            assert (
                same(lambda k, s=shape, b=bits: jax.random.bits(jax.random.key(k), s, f"uint{b}"), np.uint32(7)) == []
            )
    assert same(lambda k: jax.random.normal(jax.random.fold_in(jax.random.key(k), 3), (5,)), np.uint32(7)) == []


@given(st.data())
def test_programs_of_any_steps(data):
    """Registers of two shapes, combined at random; results are chosen at random, too."""
    x = numbers(np.float32, 3, 4)
    unary = [jnp.sin, jnp.negative, lambda v: v.T.reshape(3, 4), lambda v: v[::-1], lambda v: v + v[0], jnp.cumsum]
    picks = data.draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 99), st.integers(0, 99)), max_size=12))
    wanted = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=4))

    def program(x, y):
        values = [x, y]
        for pick, a, b in picks:
            one, two = values[a % len(values)], values[b % len(values)]
            if pick < 6:
                result = unary[pick](one)
                values.append(result.reshape(3, 4))
            elif pick == 6:
                values.append(one * two)
            elif pick == 7:
                values.append(jnp.concatenate([one[:1], two[1:]]))
            else:
                values.append(one - two.sum(0))
        return [values[at % len(values)] for at in wanted]

    same(program, x, numbers(np.float32, 3, 4, seed=2))


def test_inputs_of_any_layout():
    x = numbers(np.float32, 6, 8)
    for view in (
        x,
        x.T,
        x[::2],
        x[:, ::-1],
        np.broadcast_to(x[0], (5, 8)),
        np.frombuffer(b"\0" + x.tobytes(), np.uint8),
    ):
        same(lambda x: (x + 1, x.sum(0), x), view)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    same(lambda x: (x + 1, x.sum()), unaligned)


@pytest.mark.parametrize("number", [True, 3, -2.5, 1 + 2j])
def test_numbers_are_inputs(number):
    array = np.asarray(number)
    run, prepared = machine(lambda x: (x, x + x), array)
    for got, want in zip(run([number]), prepared(array), strict=True):
        assert not difference_in_bits(got, want)


def test_inputs_of_other_types_are_refused():
    run, _ = machine(lambda x: x + 1, numbers(np.float32, 3))
    for wrong in (numbers(np.float32, 4), numbers(np.float64, 3), 1.0, "text"):
        with pytest.raises(TypeError, match=r"expected an array of float32 \(3,\), got"):
            run([wrong])
    with pytest.raises(TypeError, match="expected 1 inputs, got 2"):
        run([numbers(np.float32, 3)] * 2)


def test_results_belong_to_whoever_gets_them():
    x = numbers(np.float32, 3, 4)
    run, _ = machine(lambda x: (x, x + 1, x.T, x[1:2], (x * 2).reshape(12), jnp.ones(3)), x)
    same_x, *others = run([x])
    assert np.shares_memory(same_x, x)
    assert not same_x.flags.writeable
    assert not any(np.shares_memory(result, x) for result in others)
    assert [result.flags.owndata for result in others[:3]] == [True] * 3


def test_references_are_counted():
    x = numbers(np.float32, 3, 4)
    run, _ = machine(lambda x: (lax.lgamma(x), jnp.sort(x), x.sum(), x, jnp.concatenate([x, x])), x)
    run([x])
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(x.dtype)
    for _ in range(100):
        run([x])
        with pytest.raises(TypeError):
            run([x.T])
    gc.collect()
    assert abs(sys.getrefcount(x) - before[0]) < 5
    assert abs(sys.getrefcount(x.dtype) - before[1]) < 50


def test_no_warnings_are_left_behind():
    x = np.zeros(4, np.float32)
    same(lambda x: (1 / x, jnp.log(x - 1), jnp.exp(x + 1e9)), x)
    with np.errstate(all="raise"):
        assert (np.float32(1) + x).tolist() == [1] * 4


def test_threads_at_once():
    x = numbers(np.float32, 300, 400)
    run, prepared = machine(lambda x: jnp.tanh(x * 2 + 1).sum(0), x)
    (want,) = prepared(x)
    wrong = []

    def work():
        for _ in range(20):
            (got,) = run([x])
            if difference_in_bits(got, want):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_signal_ends_it_before_a_long_step(monkeypatch):
    x = numbers(np.float32, 400, 400)
    run, _ = machine(lambda x: jnp.sort(x * 2), x)

    def handler(number, frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(uninterrupted, "_replaced", [(2, handler)])
    received.append((2, None, 0.0))
    with pytest.raises(KeyboardInterrupt):
        run([x])
    assert not received
    run([x])


_PROGRAMS = """
import hashlib, weft
from weft import nn
weft.manual_seed(0)
digest = hashlib.sha256()

def note(*tensors):
    for tensor in tensors:
        digest.update(tensor.detach().numpy().tobytes())

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = weft.optim.AdamW(model.parameters())
x, y = weft.randn(24, 16), weft.randint(4, (24,))
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x.flip(1).T.contiguous().T), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(*[f"{value.item():.9g}" for value in (loss, *[p.sum() for p in model.parameters()])])
a = weft.randn(6, 70, 5)
note(a.transpose(0, 1).flip(0).sum(1), a.permute(2, 0, 1).mean((0, 2)))
note((a.flip(1) * 2)[::2].cumsum(0), a[:, ::3].mT.std(0))
b = a.clone()
for i in range(6):
    b[i] += b[i - 1] * 0.5
    b[:, i].mul_(b[i, i])
note(b, b.argmax(1), b.sort(1).values, weft.rand(3, 4, dtype=weft.float64), b.index_add(0, y[:6], a))
note(nn.functional.embedding(weft.tensor([[1, 5]]), b[:, :, 0]))
print(digest.hexdigest())
"""


def test_graphs_are_computed_as_without_the_extension():
    """Whole programs, in which applications take what others have made: views, writes, draws, training steps.

    Products of matrices and `erf` are computed by kernels of the extension, which round in another order than NumPy.
    """

    def printed(flag):
        environment = dict(os.environ, WEFT_NATIVE=flag, WEFT_TIER="interpreted")
        program = [sys.executable, "-c", _PROGRAMS]
        *steps, digest = subprocess.check_output(program, env=environment, text=True).splitlines()
        return np.array([line.split() for line in steps], np.float64), digest

    (steps, digest), (steps_without, digest_without) = printed("1"), printed("0")
    assert digest == digest_without
    assert steps.shape == (3, 7)
    np.testing.assert_allclose(steps, steps_without, rtol=1e-5, atol=1e-5)


def test_a_function_that_fails_leaves_nothing():
    x = np.zeros(3)
    run, _ = machine(lambda x: lax.lgamma(x + 2) + 1, x)
    (function,) = run.calls()
    assert callable(function)
    with pytest.raises(TypeError):
        run([None])
    assert run([x])[0].tolist() == [1] * 3


def test_constants_that_are_made_one_after_another_are_told_apart():
    """A constant may be gone when the next one is made, in the same place."""
    tracing, dtype = Tracing([]), np.dtype(np.float64)
    numbers = np.arange(64.0)
    probes = [tracing.constant(numbers[at : at + 8], dtype) for at in range(0, 64, 8)]
    assert [tracing.buffers[x.buffer][0] for x in probes] == [*range(0, 64, 8)]
