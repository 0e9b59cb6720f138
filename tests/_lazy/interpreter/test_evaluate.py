"""Steps: what is run, what is kept, what is refused."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests._lazy.interpreter.check import interpret, numbers
from weft._lazy import runtime as runtime  # sets jax up as programs expect it
from weft._lazy.interpreter import costs, missing, prepare, quiet
from weft._lazy.interpreter.flatten import flattened
from weft._lazy.interpreter.table import PRIMITIVES

X = numbers(np.float32, 3, 4)


def names(function, *arrays):
    return [equation.name for equation in flattened(jax.make_jaxpr(function)(*arrays)).equations]


def test_calls_are_inlined_and_nothing_is_done_in_vain():
    def program(x):
        unused = jnp.sin(x)  # noqa: F841
        return lax.optimization_barrier(jax.jit(jax.nn.relu)(x.astype(np.float32)) + 1).reshape(3, 4)

    assert names(program, X) == ["max", "add"]


def test_broadcasts_are_left_to_numpy():
    bias = X[0]
    assert names(lambda x, b: x * 2 + b, X, bias) == ["mul", "add"]
    assert names(lambda x, c: x + c[:, None], X, X[:, 0]) == ["reshape", "add"]
    assert names(lambda b: jnp.broadcast_to(b, (3, 4)), bias) == ["broadcast_in_dim"]
    assert names(lambda b, c: b + c[:, None], bias, X[:, 0]) == ["reshape", "add"]
    assert names(lambda b: jnp.broadcast_to(b, (3, 4)) + 1, bias) == ["broadcast_in_dim", "add"]


def test_what_depends_on_constants_alone_is_computed_once():
    prepared = prepare(jax.make_jaxpr(lambda x: x + jnp.arange(4) * jnp.ones((3, 4)))(X))
    assert prepared is not None
    assert len(prepared.bound) <= 2  # a conversion, a sum


def test_unused_results_of_several_are_dropped():
    assert interpret(lambda x: lax.top_k(x, 2)[1], X)[0].shape == (3, 2)
    assert interpret(lambda x: lax.split(x, (1, 1, 1))[1], X)[0].tolist() == X[1:2].tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[1:],
        lambda x: jnp.broadcast_to(x, (2, 3, 4)),
        lambda x: lax.while_loop(lambda c: c.sum() > 1e9, lambda c: c + 1, x),
        lambda x: lax.cond(x.sum() > 1e9, lambda x: x + 1, lambda x: x, x),
    ],
)
def test_results_in_the_memory_of_inputs_are_read_only(function):
    x = X.copy()
    prepared = prepare(jax.make_jaxpr(function)(x))
    assert prepared is not None
    (result,) = prepared(x)
    assert np.shares_memory(result, x)
    assert not result.flags.writeable
    assert x.flags.writeable


def test_constants_cannot_be_written_through_results():
    prepared = prepare(jax.make_jaxpr(lambda x: (jnp.arange(3), x + 1))(X))
    assert prepared is not None
    constant, fresh = prepared(X)
    assert not constant.flags.writeable
    assert fresh.flags.writeable


def test_inputs_may_be_views_of_any_kind():
    def program(x):
        return (
            (x @ x.T).sum(0),
            lax.cumsum(x),
            x.at[1].set(0),
            lax.bitcast_convert_type(x, np.uint8),
            lax.sort(x),
            x.T.reshape(-1),
        )

    for view in (X[::-1, ::2], X.T, np.broadcast_to(X[0], (3, 4)), np.asfortranarray(X)):
        for a, b in zip(interpret(program, view), interpret(program, np.ascontiguousarray(view)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_arrays_are_freed_when_they_are_not_needed_any_more():
    alive, most = set(), [0]

    class Watched(np.ndarray):
        def __array_finalize__(self, _):
            alive.add(id(self))
            weakref.finalize(self, alive.discard, id(self))
            most[0] = max(most[0], len(alive))

    def program(x):
        for _ in range(50):
            x = x * 2 + 1
        return x

    prepared = prepare(jax.make_jaxpr(program)(X))
    assert prepared is not None
    gc.collect()
    (result,) = prepared(X.view(Watched))
    assert type(result) is Watched  # what NumPy makes of its subclasses: the steps themselves keep nothing
    assert most[0] <= 4


def test_nothing_is_warned_of():
    def program(x, n):
        return x / 0, jnp.log(-x), x.astype(np.int8), n // 0, jnp.exp(x * 1e4), n * 2**30 * 2**30

    with warnings.catch_warnings(action="error"):
        interpret(program, X, np.arange(4, dtype=np.int32))


def test_a_whole_program_is_quiet_at_once():
    prepared = prepare(jax.make_jaxpr(lambda x: x / 0)(X))
    assert prepared is not None
    with warnings.catch_warnings(action="error"), quiet():
        assert np.isinf(prepared.run([X + 9])[0]).all()


def test_what_is_missing_is_told():
    def called(x):
        return jax.random.gamma(jax.random.key(0), x, dtype=np.float32)

    def program(x):
        return lax.cond(x.sum() > 0, called, jnp.sin, x) + lax.igamma_grad_a(x, x)

    closed = jax.make_jaxpr(program)(X)
    assert missing(closed) == {"random_gamma", "igamma_grad_a"}
    assert prepare(closed) is None
    assert missing(jax.make_jaxpr(jnp.sin)(X)) == set()


def test_threads_share_prepared_programs():
    def program(x):
        return lax.scan(lambda c, row: (c * row, c.sum()), x[0], x)[1].sum() + (x @ x.T).sum()

    prepared = prepare(jax.make_jaxpr(program)(X))
    assert prepared is not None
    want = prepared(X)[0]
    results = []
    threads = [threading.Thread(target=lambda: results.extend(prepared(X)[0] for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200
    assert all(result == want for result in results)


def test_common_programs_do_not_load_scipy():
    script = (
        "import sys, numpy as np, jax, jax.numpy as jnp\n"
        "from weft._lazy.interpreter import prepare\n"
        "f = lambda x: jax.nn.gelu(x @ x.T, approximate=False) + jax.random.normal(jax.random.key(0), (4, 4))\n"
        "x = np.ones((4, 4), np.float32)\n"
        "prepare(jax.make_jaxpr(f)(x))(x)\n"
        "print([name for name in sys.modules if name.startswith('scipy')])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_names_of_primitives_are_names_of_jax():
    known = {value.name for value in vars(lax).values() if hasattr(value, "multiple_results")}
    assert len(known & set(PRIMITIVES)) > 100


def test_costs_are_of_primitives_that_exist():
    assert {*costs._COMPILING, *costs._NUMBER} <= {*PRIMITIVES}
