"""jax functions as operators on tensors."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import pallas as pl

import weft
from weft._lazy.aval import aval_of
from weft._lazy.value import Value
from weft._tensor.tensor import wrap
from weft.errors import ArgumentError, DeviceError


def test_results_and_arguments_may_be_any_pytree():
    class Pair(NamedTuple):
        a: object
        b: object

    summed = weft.from_jax(lambda pair, scale: {"sum": pair.a + scale * pair.b["x"], "two": (pair.a, None)})
    found = summed(Pair(weft.ones(2), {"x": weft.full((2,), 3.0)}), scale=2)
    assert found["sum"].tolist() == [7, 7]
    assert found["two"][0].tolist() == [1, 1]
    assert found["two"][1] is None


def test_it_is_recorded_and_differentiated_twice():
    def body(x, y):
        return jnp.sin(x) * y

    x = weft.randn(3, dtype=weft.float64, requires_grad=True)
    y = weft.randn(2, 3, dtype=weft.float64, requires_grad=True)
    operator = weft.from_jax(body)
    assert operator(x, y).grad_fn.name() == "BodyBackward0"
    assert weft.autograd.gradcheck(operator, (x, y))
    assert weft.autograd.gradgradcheck(operator, (x, y))


def test_the_derivative_is_the_custom_one_where_there_is_one():
    @jax.custom_vjp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g * 7,))
    x = weft.tensor([0.4, 1.6], requires_grad=True)
    weft.from_jax(straight_through)(x).sum().backward()
    assert x.grad.tolist() == [7, 7]


def test_complex_gradients_follow_pytorchs_convention():
    z = weft.tensor([1 + 2j, -1j], dtype=weft.complex128, requires_grad=True)
    assert weft.autograd.gradcheck(weft.from_jax(lambda z: jnp.exp(z) * z), (z,))


def test_a_constant_is_part_of_the_program_and_a_tensor_is_not(compilations):
    operator = weft.from_jax(lambda x, n: x * n)
    for n in (2.0, 3.0):
        assert operator(weft.ones(()), weft.tensor(n)).item() == n
    assert len(compilations()) == 1
    assert [operator(weft.ones(()), n).item() for n in (2, 2.0, True)] == [2, 2, 1]
    assert [str(operator(weft.ones(()), n).item()) for n in (0.0, -0.0)] == ["0.0", "-0.0"]


def test_it_is_captured_by_compile_and_serves_optax():
    weights = weft.tensor([1.0, -2.0])
    adam = optax.adam(0.1)
    update = weft.from_jax(adam.update)
    step = weft.compile(lambda state, grads: update(grads, state))
    state = weft.from_jax(adam.init)(weights)
    for _ in range(3):
        changes, state = step(state, weights * 2)
        weights = weights + changes
    expected = np.array([1.0, -2.0], np.float32)
    reference = adam.init(jnp.asarray(expected))
    for _ in range(3):
        changes, reference = adam.update(jnp.asarray(expected * 2), reference)
        expected = expected + np.asarray(changes)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)


def test_a_pallas_kernel_is_an_operator():
    def kernel(x, y, out):
        out[...] = x[...] * y[...] + 1

    def fused(x, y):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x, y)

    assert weft.from_jax(fused)(weft.full((4,), 2.0), weft.arange(4.0)).tolist() == [1, 3, 5, 7]


def test_methods_and_partials_without_a_name_can_be_wrapped():
    class Scale:
        def __call__(self, x):
            return x * 2

    assert weft.from_jax(Scale())(weft.ones(1)).item() == 2


def test_bad_arguments_are_named():
    add = weft.from_jax(lambda x, y: x + y)
    with pytest.raises(ArgumentError, match=r"^<lambda>\(\): arguments that hold no tensors .*hashable; got set$"):
        weft.from_jax(lambda x, y: x)(weft.ones(1), {1})
    with pytest.raises(TypeError, match=r"^add got incompatible shapes for broadcasting: \(2,\), \(3,\)"):  # jax's own
        add(weft.ones(2), weft.ones(3))
    with pytest.raises(ZeroDivisionError):
        weft.from_jax(lambda x: x * (1 // 0))(weft.ones(1))
    with pytest.raises(DeviceError, match="Expected all tensors to be on the same device"):
        add(weft.ones(1), wrap(Value(aval_of((1,), weft.float32, device=weft.device("tpu:0")), None)))


def test_a_function_without_a_derivative_is_refused_where_that_is_asked_for():
    """And not where a result is read, though it keeps what derivatives need."""
    x = weft.tensor([0.5, 2.0], requires_grad=True)
    y = weft.from_jax(lambda a: jax.lax.igamma_grad_a(a, jnp.ones_like(a)))(x)
    assert y.isfinite().all()
    with pytest.raises(
        RuntimeError, match=r"^the derivative of .* is not implemented: Differentiation rule for 'igamma_gr"
    ):
        y.sum().backward()
