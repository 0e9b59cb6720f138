"""Functions of tensors inside of jax's transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, CompileError
from weft.nn import functional as F


def energy(x, w):
    return weft.tanh(F.layer_norm(x @ w, (3,))).square().sum()


X = np.linspace(-1, 1, 8).reshape(2, 4)
W = np.cos(np.arange(12.0)).reshape(4, 3)


def test_grad_jit_and_vmap_agree_with_weft():
    function = weft.to_jax(energy)
    x, w = weft.tensor(X, requires_grad=True), weft.tensor(W, requires_grad=True)
    energy(x, w).backward()
    for found in (jax.grad(function, (0, 1))(X, W), jax.jit(jax.grad(function, (0, 1)))(X, W)):
        np.testing.assert_allclose(found[0], x.grad.numpy(), rtol=1e-11)
        np.testing.assert_allclose(found[1], w.grad.numpy(), rtol=1e-11)
    rows = jax.vmap(function, (0, None))(X[:, None], W)
    np.testing.assert_allclose(rows, [function(row[None], W) for row in X])


def test_outside_of_transformations_it_just_runs():
    def looks(x, n):
        return {"up": x + 1 if x.sum() > 0 else x, "n": n}

    found = weft.to_jax(looks)(np.ones(2, np.float32), 3)
    assert isinstance(found["up"], jax.Array)
    assert (found["up"].tolist(), found["n"]) == ([2, 2], 3)


def test_rows_keep_their_own_derivative():
    gradient = jax.grad(weft.to_jax(lambda x: weft.linalg.vector_norm(x)))
    assert gradient(jnp.zeros(3)).tolist() == [0, 0, 0]  # jax's own derivative of the norm is NaN there


def test_a_training_loop_of_jax_trains_a_module():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    names = [name for name, _ in model.named_parameters()]
    params = {name: jnp.array(p.detach().numpy()) for name, p in model.named_parameters()}

    def loss(params, x, y):
        hidden = F.linear(x, params["0.weight"], params["0.bias"]).tanh()
        return F.mse_loss(F.linear(hidden, params["2.weight"], params["2.bias"]), y)

    optimizer = optax.adam(0.05)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        value, grads = jax.value_and_grad(weft.to_jax(loss))(params, x, y)
        changes, state = optimizer.update(grads, state)
        return optax.apply_updates(params, changes), state, value

    x = np.random.default_rng(0).normal(size=(32, 2)).astype(np.float32)
    y = x[:, :1] * x[:, 1:]
    first = None
    for _ in range(60):
        params, state, value = step(params, state, x, y)
        first = value if first is None else first
    assert value < first / 5
    assert sorted(params) == sorted(names)


def test_tensors_from_outside_are_constants_and_stay_as_they_are():
    layer = nn.Linear(2, 1)
    before = layer.weight.tolist()
    found = jax.jit(weft.to_jax(layer))(jnp.ones((1, 2), jnp.float32))
    np.testing.assert_allclose(found, layer(weft.ones(1, 2)).detach().numpy(), rtol=1e-6)
    assert layer.weight.tolist() == before
    assert layer.weight.grad is None


def test_own_tensors_may_be_written_and_differentiated_inside():
    def inside(x):
        total = weft.zeros(2)
        total[0] = x.sum()
        leaf = weft.ones(2, requires_grad=True)
        (leaf * x.float()).sum().backward()
        return total, leaf.grad, weft.autograd.grad((leaf**2).sum(), leaf)[0]

    found = jax.jit(weft.to_jax(inside))(jnp.array([1.0, 2.0]))
    assert [part.tolist() for part in found] == [[3, 0], [1, 2], [2, 2]]


def test_gradients_stop_where_the_function_stops_them():
    def unseen(x):
        with weft.no_grad():
            factor = x * x
        return (factor * x.detach() * x).sum()

    np.testing.assert_allclose(jax.grad(weft.to_jax(unseen))(X), X**3)


def test_an_argument_may_be_differentiated_and_written_inside():
    def slope(x):
        (found,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
        x.add_(1)
        return found + 0 * x

    np.testing.assert_allclose(jax.jit(weft.to_jax(slope))(X), 3 * X**2, atol=1e-15)
    curve = jax.grad(lambda x: weft.to_jax(slope)(x).sum())
    np.testing.assert_allclose(curve(X), 6 * X)


def test_random_operators_draw_from_the_key():
    drop = jax.jit(weft.to_jax(lambda x: (F.dropout(x), weft.rand_like(x)), random=True))
    x = jnp.ones(64)
    once, again, other = (drop(jax.random.key(seed), x) for seed in (0, 0, 1))
    assert (once[0] == again[0]).all()
    assert (once[1] == again[1]).all()
    assert (once[0] != other[0]).any()
    assert ((once[0] == 0) != (once[1] < 0.5)).any()  # two draws, not one


LAYER, NORM = nn.Linear(2, 1), nn.BatchNorm1d(2)


class Doubled(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


REFUSED = [
    (lambda x: x if x.sum() > 0 else -x, r"needs a tensor's value at .*test_to_jax.py:\d+, and under a jax"),
    (lambda x: F.dropout(x), r"draws random numbers at .* use to_jax\(fn, random=True\)"),
    (NORM, r"^to_jax\(BatchNorm1d\): it writes to a tensor of shape \[\] that it did not make"),
    (lambda x: LAYER(x.float()).sum().backward(), r"leaves a gradient in a tensor of shape \[1, 2\] that it did"),
    (Doubled.apply, r"applies the autograd.Function Doubled at .*custom_op"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED, ids=["value", "random", "write", "gradient", "Function"])
def test_what_jax_cannot_see_is_refused_and_leaves_nothing(function, text):
    with pytest.raises(CompileError, match=text):
        jax.jit(weft.to_jax(function))(jnp.ones((3, 2), jnp.float32))
    assert NORM.running_mean.tolist() == [0, 0]
    assert NORM.num_batches_tracked.item() == 0
    assert LAYER.weight.grad is None


def test_a_key_is_asked_for():
    with pytest.raises(ArgumentError, match=r"random=True\): the first argument must be a jax.random.key$"):
        weft.to_jax(lambda: weft.rand(2), random=True)()


def test_from_jax_and_to_jax_nest():
    both = weft.to_jax(lambda x: weft.from_jax(jnp.cumsum)(x.exp()).sum())
    expected = jax.grad(lambda x: jnp.cumsum(jnp.exp(x)).sum())(X[0])
    np.testing.assert_allclose(jax.grad(both)(X[0]), expected, rtol=1e-11)
    around = weft.from_jax(jax.vmap(weft.to_jax(lambda row: F.softmax(row, 0))))
    np.testing.assert_allclose(around(weft.tensor(X)).sum(1).numpy(), [1, 1])


def test_a_function_that_is_excluded_from_captures_is_traced():
    excluded = weft.compiler.disable(lambda x: x + 1)
    assert jax.jit(weft.to_jax(lambda x: 2 * excluded(x)))(jnp.ones(2)).tolist() == [4, 4]
