"""Users' operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft import Tensor, library
from weft.errors import ArgumentError, CompileError, GradientError, ValueRangeError


@library.custom_op("tests::swish", dims=library.pointwise)
def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    return x * weft.sigmoid(beta * x)


@library.custom_op("tests::host_sin", mutates_args=())
def host_sin(x: Tensor) -> Tensor:
    return weft.from_numpy(np.sin(x.numpy()))


host_sin.register_fake(weft.empty_like)
host_sin.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def leaf(*shape):
    return weft.randn(*shape, dtype=weft.float64, requires_grad=True)


@pytest.mark.parametrize("operator", [swish, host_sin])
def test_gradients_of_both_orders(operator):
    x = leaf(3)
    assert weft.autograd.gradcheck(operator, (x,))
    assert weft.autograd.gradgradcheck(operator, (x,))


def test_an_operator_carries_its_name_and_keywords():
    x = leaf(2)
    found = swish(x, beta=2.0)
    assert "swish" in found.grad_fn.name()
    assert repr(swish) == "<CustomOpDef(tests::swish)>"
    assert weft.allclose(found, x * weft.sigmoid(2 * x))


def test_host_code_runs_in_compiled_functions_and_under_vmap():
    x = weft.randn(3)
    twice = weft.compile(lambda x: host_sin(x) * 2, fullgraph=True)
    for _ in range(2):
        np.testing.assert_allclose(twice(x).numpy(), 2 * np.sin(x.numpy()), rtol=1e-6)
    found = jax.vmap(weft.to_jax(host_sin))(jnp.ones((2, 3)))
    np.testing.assert_allclose(found, np.full((2, 3), np.sin(1)))


def test_written_arguments_get_their_values_and_gradients():
    @library.custom_op("tests::accumulate", mutates_args={"total"})
    def accumulate(total: Tensor, x: Tensor) -> Tensor:
        total.add_(x)
        return x * 3

    total, x = weft.zeros(2), weft.ones(2, requires_grad=True)
    found = accumulate(total, x=x)
    assert (found.tolist(), total.tolist()) == ([3, 3], [1, 1])
    found.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_sequences_options_and_several_results():
    @library.custom_op("tests::mix")
    def mix(xs: list[Tensor], weight: Tensor | None, power: int) -> tuple[Tensor, Tensor]:
        total = sum(xs)
        return total**power, total if weight is None else total * weight

    def backward(ctx, first, second):
        total = sum(ctx.saved_tensors)
        return [first * ctx.power * total ** (ctx.power - 1) + second] * ctx.count, None, None

    def setup(ctx, inputs, output):
        xs, _, ctx.power = inputs
        ctx.count = len(xs)
        ctx.save_for_backward(*xs)

    mix.register_autograd(backward, setup_context=setup)
    x, y = leaf(2), leaf(2)
    assert [part.shape for part in mix([x, y], weft.ones(2), 2)] == [(2,), (2,)]
    assert weft.autograd.gradcheck(lambda x, y: mix([x, y], None, 3), (x, y))


def test_a_body_over_arrays_has_a_rule_a_cast_and_a_derivative():
    @library.custom_op(
        "tests::rms",
        dims=library.reduces,
        cast=library.Cast.FLOAT32,
        vjp=lambda g, out, x: [5 * g * x / out / x.size],
    )
    def rms(x: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.mean(x * x))

    x = weft.tensor([3.0, 4.0], dtype=weft.float64, requires_grad=True)
    rms(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.array([3, 4]) * 5 / 2 / np.sqrt(12.5))
    assert (rms.row.types.autocast, rms.row.dims) == (library.Cast.FLOAT32, library.reduces)


def test_an_operator_of_no_tensors_gives_arrays_or_nothing():
    @library.custom_op("tests::counted")
    def counted(n: int) -> jax.Array:
        return jnp.arange(n)

    @library.custom_op("tests::ignore")
    def ignore(x: Tensor) -> None: ...

    assert counted(3).tolist() == [0, 1, 2]
    assert ignore(weft.ones(2)) is None


def test_results_are_tensors():
    @library.custom_op("tests::number")
    def number(x: Tensor) -> float:
        return 3.0

    with pytest.raises(ArgumentError, match=r"^tests::number: an operator gives tensors, and it returned a float$"):
        number(weft.ones(1))


def test_the_rule_checks_shapes():
    @library.custom_op("tests::add", dims=library.pointwise)
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y.sum()

    with pytest.raises(RuntimeError, match=r"size of tensor a \(2\) must match the size of tensor b \(3\)"):
        add(weft.ones(2), weft.ones(3))


def no_hint(x) -> Tensor: ...
def both(x: Tensor, y: jax.Array) -> Tensor: ...
def many(*xs: Tensor) -> Tensor: ...
def plain(x: Tensor) -> Tensor: ...


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: library.custom_op("x", swish), ValueRangeError, "of the form namespace::name, got 'x'$"),
        (
            lambda: library.custom_op("t::x", no_hint),
            ArgumentError,
            "^t::x: parameter 'x' must have a type annotation$",
        ),
        (lambda: library.custom_op("t::x", both), ArgumentError, "annotate all as one of them$"),
        (lambda: library.custom_op("t::x", many), ArgumentError, "fixed number of parameters$"),
        (
            lambda: library.custom_op("t::x", swish.__wrapped__, mutates_args="y"),
            ValueRangeError,
            "names 'y', which is no",
        ),
    ],
)
def test_bad_definitions_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_faults_of_a_body_are_named():
    @library.custom_op("tests::sly")
    def sly(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 1

    @library.custom_op("tests::unfaked")
    def unfaked(x: Tensor) -> Tensor:
        return weft.tensor(x.tolist())

    @library.custom_op("tests::wrong")
    def wrong(x: Tensor) -> Tensor:
        return weft.zeros(x.numpy().shape[0] + 1)

    wrong.register_fake(weft.empty_like)
    with pytest.raises(CompileError, match=r"^tests::sly: it writes to 'x', which mutates_args does not name$"):
        sly(weft.ones(1))
    with pytest.raises(CompileError, match=r"^tests::unfaked: its body looks at values.*register_fake"):
        unfaked(weft.ones(1))
    with pytest.raises(Exception, match=r"tests::wrong: result 0 is float32\[3\], and its fake says float32\[2\]"):
        wrong(weft.ones(2)).tolist()


def test_backward_without_a_formula_is_refused_on_the_host():
    @library.custom_op("tests::opaque")
    def opaque(x: Tensor) -> Tensor:
        return weft.from_numpy(x.numpy() + 1)

    opaque.register_fake(weft.empty_like)
    x = leaf(2)
    found = opaque(x)
    np.testing.assert_allclose(found.detach().numpy(), x.detach().numpy() + 1)
    found.sum().backward()
    with pytest.raises(Exception, match=r"Trying to backward through tests::opaque but no autograd formula"):
        x.grad.tolist()


def test_a_backward_with_the_wrong_number_of_gradients_is_refused():
    @library.custom_op("tests::short")
    def short(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    short.register_autograd(lambda ctx, g: g)
    with pytest.raises(GradientError, match=r"a gradient or None for each of its 2 arguments, got 1$"):
        short(leaf(1), leaf(1)).sum().backward()


def test_a_backward_that_gives_another_shape_is_refused():
    @library.custom_op("tests::wide")
    def wide(x: Tensor) -> Tensor:
        return x * 1

    wide.register_autograd(lambda ctx, g: weft.ones(3))
    with pytest.raises(GradientError, match=r"returned a gradient of shape \[3\] for an argument of shape \[2\]$"):
        wide(leaf(2)).sum().backward()
