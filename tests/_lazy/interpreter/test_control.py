"""Loops, branches and functions that are called."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests._lazy.interpreter.check import Case, check, numbers

X = numbers(np.float32, 4, 3)


def _step(carry, row):
    return carry * 0.5 + row, (carry.sum(), row * 2)


def _halves(x):
    return lax.while_loop(lambda c: c[0].sum() > 0.01, lambda c: (c[0] / 2, c[1] + 1), (abs(x), np.int32(0)))


@jax.custom_vjp
def _clipped(x):
    return jnp.clip(x, 0, 1)


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, g: (jnp.where(x > 0, g, 0),))


def _index(x):
    return lax.switch(x, [lambda: 1.0, lambda: 2.0, lambda: 3.0])


def test_scan():
    check(
        [
            *[Case(f"reverse={r}", lambda x, r=r: lax.scan(_step, x[0], x, reverse=r), [X], 4) for r in (False, True)],
            Case("of nothing", lambda x: lax.scan(_step, x[0], x[:0]), [X]),
            Case("without arrays", lambda x: lax.scan(lambda c, _: (c + 1, c), x, length=5), [np.int32(3)]),
            Case("unrolled", lambda x: lax.scan(_step, x[0], x, unroll=2), [X], 4),
            Case("with constants", lambda x: lax.map(lambda row: (row * x).sum(), x), [X], 8, False),
            Case("carry handed on", lambda x: lax.scan(lambda c, row: (row, c), x[0], x), [X]),
            Case("derivative", jax.grad(lambda x: lax.scan(_step, x[0], x)[1][0].sum()), [X], 8),
            Case("running", lambda x: lax.associative_scan(jnp.add, x), [X], 8),
        ]
    )


def test_while():
    check(
        [
            Case("numbers", _halves, [X], 4),
            Case("a batch", lambda x: jax.vmap(_halves)(x), [X], 4),
            Case("never", lambda x: lax.while_loop(lambda c: c.sum() > 100, lambda c: c + 1, x), [X]),
            Case("counted", lambda x: lax.fori_loop(0, 5, lambda i, c: c * i + x, x), [X], 4),
            Case("bounds", lambda n: lax.fori_loop(n, 7, lambda i, c: c + i, 0), [np.int64(2)]),
            Case("sort of search", lambda x: jnp.searchsorted(x, jnp.array([0.0, 9.0, jnp.nan])), [np.sort(X[:, 0])]),
        ]
    )


def test_branches():
    check(
        [
            *[Case(str(i), lambda i: _index(i), [np.int32(i)]) for i in (-3, 0, 1, 2, 9)],
            *[
                Case(str(p), lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x, x), [np.array(p), X])
                for p in (False, True)
            ],
            Case("a batch", lambda i: jax.vmap(_index)(i), [np.array([0, 5, 1], np.int32)]),
            Case("by platform", lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x), [X]),
        ]
    )


def test_functions_are_inlined():
    check(
        [
            Case("jit", lambda x: jax.jit(lambda y: (y + 1, y))(x), [X]),
            Case("checkpoint", jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum()), [X], 8),
            Case("custom jvp", lambda x: jax.nn.relu(x) + jax.nn.silu(x), [X], 8),
            Case("custom vjp", lambda x: (_clipped(x), jax.grad(lambda x: _clipped(x).sum())(x)), [X]),
            Case("barrier", lambda x: lax.optimization_barrier((x, x + 1)), [X]),
            Case("constant", lambda x: x + jnp.asarray(X) @ np.eye(3, dtype=np.float32), [X]),
            Case("linear solve", lambda x: lax.custom_linear_solve(lambda y: y * 2, x, lambda _, y: y / 2), [X]),
            Case("results of no equation", lambda x: (x, 3, X, x), [X]),
        ]
    )
