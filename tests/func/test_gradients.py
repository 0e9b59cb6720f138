"""`grad`, `vjp`, `jvp`, Jacobians and Hessians, nested, compared with jax's own transformations."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft import func
from weft.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

X, Y = np.array([0.3, -0.7, 1.1], np.float32), np.array([0.5, 0.2, -0.4], np.float32)
XS = np.stack([X, Y, X * Y, X + Y])


def ours(transform):
    """A transform of the function, on tensors."""
    return transform(weft, func, lambda x: (x.sin() * x).sum(), lambda x: x.exp() * x.sum())


def jaxs(transform):
    """The same with jax."""
    return transform(jnp, JAX, lambda x: (jnp.sin(x) * x).sum(), lambda x: jnp.exp(x) * x.sum())


class JAX:
    """jax's transforms under PyTorch's names."""

    grad, jacfwd, jacrev, hessian, vjp, jvp = jax.grad, jax.jacfwd, jax.jacrev, jax.hessian, jax.vjp, jax.jvp
    linearize, grad_and_value = jax.linearize, staticmethod(lambda f: lambda x: jax.value_and_grad(f)(x)[::-1])
    vmap = staticmethod(lambda f, in_dims=0, out_dims=0: jax.vmap(f, in_dims, out_dims))


TRANSFORMS = {
    "grad": lambda _, t, f, g: t.grad(f),
    "grad of grad": lambda _, t, f, g: t.grad(lambda x: t.grad(f)(x).sum()),
    "grad of grad of grad": lambda _, t, f, g: t.grad(lambda x: t.grad(lambda y: t.grad(f)(y).sum())(x)[0]),
    "grad_and_value": lambda _, t, f, g: t.grad_and_value(f),
    "jacrev": lambda _, t, f, g: t.jacrev(g),
    "jacfwd": lambda _, t, f, g: t.jacfwd(g),
    "hessian": lambda _, t, f, g: t.hessian(f),
    "jacfwd of jacrev": lambda _, t, f, g: t.jacfwd(t.jacrev(g)),
    "jacrev of jacfwd": lambda _, t, f, g: t.jacrev(t.jacfwd(g)),
    "jacrev of jacrev": lambda _, t, f, g: t.jacrev(t.jacrev(g)),
    "jacfwd of jacfwd": lambda _, t, f, g: t.jacfwd(t.jacfwd(g)),
    "jvp of grad": lambda _, t, f, g: lambda x: t.jvp(t.grad(f), (x,), (x * 2,)),
    "jvp of jvp": lambda _, t, f, g: lambda x: t.jvp(lambda y: t.jvp(g, (y,), (y,))[1], (x,), (x,)),
    "grad of jvp": lambda _, t, f, g: t.grad(lambda x: t.jvp(g, (x,), (x * x,))[1].sum()),
    "vjp of vjp": lambda _, t, f, g: lambda x: t.vjp(lambda y: t.vjp(g, y)[1](y)[0], x)[1](x)[0],
    "linearize": lambda _, t, f, g: lambda x: t.linearize(g, x)[1](x + 1),
    "grad of a product with another argument": lambda _, t, f, g: lambda x: t.grad(lambda y: (g(y) * x).sum())(x),
}
BATCHED = {
    "vmap of grad": lambda _, t, f, g: t.vmap(t.grad(f)),
    "vmap of hessian": lambda _, t, f, g: t.vmap(t.hessian(f)),
    "grad of vmap": lambda _, t, f, g: t.grad(lambda x: t.vmap(f)(x).sum()),
    "vmap of grad of vmap": lambda _, t, f, g: t.vmap(t.grad(lambda x: (t.vmap(lambda y: y * f(x))(x)).sum())),
    "jvp of vmap": lambda _, t, f, g: lambda x: t.jvp(t.vmap(g), (x,), (x,)),
    "vmap of jvp": lambda _, t, f, g: t.vmap(lambda x: t.jvp(g, (x,), (x,))[1]),
    "jacrev of vmap": lambda _, t, f, g: t.jacrev(t.vmap(f)),
    "vmap of vmap of jacfwd": lambda _, t, f, g: (
        lambda x: t.vmap(t.vmap(t.jacfwd(lambda y: y * f(x)), 0), 0)(x[:, None])
    ),
    "grad through vmap of grad": lambda _, t, f, g: t.grad(lambda x: t.vmap(t.grad(f))(x).sum()),
    "vmap along the other dim": lambda _, t, f, g: t.vmap(t.grad(f), 1, 1),
}


def assert_same(result, expected):
    if isinstance(expected, (tuple, list)):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other)
    else:
        assert not result.requires_grad
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_nested_transforms_are_those_of_jax(name):
    assert_same(ours(TRANSFORMS[name])(weft.tensor(X)), jaxs(TRANSFORMS[name])(X))


@pytest.mark.parametrize("name", BATCHED)
def test_nested_transforms_of_several_examples_are_those_of_jax(name):
    assert_same(ours(BATCHED[name])(weft.tensor(XS)), jaxs(BATCHED[name])(jnp.asarray(XS)))


def test_structures_of_arguments_and_results():
    point = {"b": weft.tensor(X), "a": (weft.tensor(Y), weft.tensor(2.0))}
    gradient = grad(lambda p: (p["b"] * p["a"][0]).sum() * p["a"][1] ** 2)(point)
    assert list(gradient) == ["b", "a"]
    np.testing.assert_allclose(gradient["b"].numpy(), 4 * Y)
    np.testing.assert_allclose(gradient["a"][1].numpy(), 4 * (X * Y).sum(), rtol=1e-6)
    table = jacrev(lambda p: {"twice": p["b"] * 2, "sum": p["a"][0].sum()})(point)
    assert table["twice"]["b"].shape == (3, 3)
    assert table["twice"]["a"][1].tolist() == [0, 0, 0]
    assert table["sum"]["a"][0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_argnums_and_aux(jacobian):
    x, y = weft.tensor(X), weft.tensor(Y)
    f = lambda a, b: (a.outer(b), a.sum())  # noqa: E731
    (by_y, by_x), aux = jacobian(f, (1, 0), has_aux=True)(x, y)
    assert by_y.shape == by_x.shape == (3, 3, 3)
    assert aux.item() == pytest.approx(X.sum())
    assert weft.equal(by_x[0, :, 0], y)


@pytest.mark.parametrize("chunk_size", [1, 2, 100])
def test_chunks_of_a_jacobian(chunk_size):
    f = lambda a: (a.outer(a), a.sum())  # noqa: E731
    expected = jacrev(f)(weft.tensor(X))
    assert all(map(weft.equal, jacrev(f, chunk_size=chunk_size)(weft.tensor(X)), expected))


def test_aux_is_left_too():
    x = weft.tensor(X)
    gradient, (value, aux) = func.grad_and_value(lambda a: ((a * a).sum(), {"twice": a * 2}), has_aux=True)(x)
    assert not any(t.requires_grad for t in (gradient, value, aux["twice"]))
    assert weft.equal(grad(lambda a: ((a * a).sum(), a), has_aux=True)(x)[1], x)
    out, pullback, aux = vjp(lambda a: (a * 2, 7), x, has_aux=True)
    assert aux == 7
    assert weft.equal(pullback(out)[0], 4 * x)
    assert jvp(lambda a: (a * 2, 7), (x,), (x,), has_aux=True)[2] == 7


def test_an_independent_result_has_derivatives_of_zero():
    x = weft.tensor(X)
    assert grad(lambda a: weft.ones(()))(x).tolist() == [0, 0, 0]
    assert jvp(lambda a: weft.ones(2), (x,), (x,))[1].tolist() == [0, 0]
    assert hessian(lambda a: a.sum())(x).tolist() == [[0] * 3] * 3


# --- what is around ---


def test_gradients_flow_on_outside():
    x, w = weft.tensor(X), weft.tensor(Y, requires_grad=True)
    gradient = grad(lambda a: ((a * w) ** 2).sum())(x)
    gradient.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 4 * X * Y, rtol=1e-6)
    assert not grad(lambda a: (a * a).sum() + w.sum())(x).requires_grad
    assert grad(lambda a: (a**3).sum())(w).requires_grad
    assert vmap(grad(lambda a: (a * a * w).sum()))(weft.tensor(XS)).requires_grad


def test_no_grad_counts_within_and_not_around():
    w = weft.tensor(X, requires_grad=True)

    def f(a):
        with weft.no_grad():
            b = a * a
        return (a * b).sum()

    assert weft.allclose(grad(f)(w.detach()), w * w)
    assert weft.allclose(jvp(f, (w.detach(),), (w.detach(),))[1], 3 * (w**3).sum())
    with weft.no_grad():
        assert not grad(f)(w).requires_grad
    with weft.inference_mode():
        assert grad(f)(w).shape == (3,)


def test_writes_to_what_it_makes_are_fine_and_to_what_it_captures_refused():
    x, w = weft.tensor(X), weft.zeros(3)

    def f(a):
        z = weft.tensor([0.0, 0.0, 1.0])
        z[0] = a[0] ** 2
        return (z.mul_(a) * a.add(1).sub_(1)).sum()

    np.testing.assert_allclose(grad(f)(x).numpy(), [4 * X[0] ** 3, 0, 2 * X[2]], rtol=1e-4)
    for transformed in (grad(lambda a: (w.add_(a) * a).sum()), grad(lambda a: (w[1:].zero_() * a.sum()).sum())):
        with pytest.raises(RuntimeError, match=r"attempted to call in-place operation that would mutate a captured"):
            transformed(x)
    assert w.tolist() == [0, 0, 0]
    assert not w.requires_grad


def test_a_step_with_a_gradient_within_is_compiled():
    data = weft.ones(4, 3)

    @weft.compile
    def step(p):
        return p - 0.1 * grad(lambda q: ((data @ q) ** 2).mean())(p)

    for shift in range(3):  # a function that could not be captured would warn
        p = weft.tensor(X) + shift
        assert weft.allclose(step(p), p - 0.2 * p.sum())
    assert weft.allclose(hessian(weft.compile(lambda a: (a**3).sum()))(p), weft.diag(6 * p))


def test_a_pullback_serves_several_times_and_under_vmap():
    x = weft.tensor(X)
    out, pullback = vjp(lambda a: a.sin(), x)
    assert not out.requires_grad
    for scale in (1, 2):
        assert weft.allclose(pullback(scale * weft.ones(3))[0], scale * x.cos())
    assert weft.allclose(vmap(pullback)(weft.eye(3))[0], weft.diag(x.cos()))


def test_a_pullback_is_differentiated_by_its_cotangent():
    x, v = weft.tensor(X), weft.tensor(Y, requires_grad=True)
    vjp(lambda a: a.sin(), x)[1](v)[0].sum().backward()
    assert weft.allclose(v.grad, x.cos())


def test_linearize_runs_the_function_once():
    calls = []
    out, pushforward = linearize(lambda a, b: (calls.append(1), a * b)[1], weft.tensor(X), weft.tensor(Y))
    assert weft.equal(pushforward(weft.ones(3), weft.zeros(3)), weft.tensor(Y))
    assert weft.equal(pushforward(weft.zeros(3), weft.ones(3)), weft.tensor(X))
    assert weft.equal(out, weft.tensor(X * Y))
    assert len(calls) == 1


def test_forward_mode_has_the_subgradients_of_reverse_mode():
    x = weft.tensor([-1.0, 0.0, 2.0])
    for f in (weft.relu, weft.abs, lambda a: a.clamp(0, 2), lambda a: a.max(), lambda a: weft.maximum(a, -a)):
        assert weft.equal(jacfwd(f)(x), jacrev(f)(x))


def test_complex_functions():
    z = weft.tensor([1 + 2j, 0.5 - 1j])
    assert weft.allclose(jvp(lambda a: a * a, (z,), (z,))[1], 2 * z * z)
    assert weft.allclose(grad(lambda a: a.abs().square().sum())(z), 2 * z)
    with pytest.raises(
        RuntimeError, match=r"^jacrev: Expected all inputs to be real but received complex tensor at fl"
    ):
        jacrev(lambda a: a)(z)


def test_functions_that_change_nothing():
    x = weft.tensor(X)
    assert func.functionalize(lambda a: a.clone().add_(1))(x).tolist() == (x + 1).tolist()
    assert func.debug_unwrap(x) is x
    with pytest.raises(
        RuntimeError, match=r"^functionalize\(f, remove='mutations'\): received invalid argument for rem"
    ):
        func.functionalize(lambda a: a, remove="x")


# --- errors, with PyTorch's texts ---

JVP = "jvp(f, primals, tangents): "
x = weft.tensor(X)
ERRORS = [
    (lambda: grad(lambda a: a)(x), "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor "
     "with 1 dims. Maybe you wanted to use the vjp or jacrev APIs instead?"),
    (lambda: grad(lambda a: 3)(x), "grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got <class 'int'>"),
    (lambda: grad(lambda a: a.sum())(weft.arange(3)), "only Tensors of floating point dtype can require gradients"),
    (lambda: grad(lambda a: a.sum(), has_aux=True)(x), "grad_and_value(f)(*args): output of function f should be a "
     "tuple: (output, aux) if has_aux is True"),
    (lambda: grad(lambda a: a, 1)(x), "Got argnum=1, but only 1 positional inputs"),
    (lambda: grad(lambda a: a, (0, 0))(x), "argnums elements must be unique, got (0, 0)"),
    (lambda: grad(lambda a: a, ())(x), "argnums must be non-empty"),
    (lambda: grad(lambda a: a, "x")(x), "argnums must be int or Tuple[int, ...], got: <class 'str'>"),
    (lambda: grad(lambda a: a.sum() * 1j)(x), "grad can be implicitly created only for real scalar outputs but got "
     "torch.complex64"),
    (lambda: vjp(lambda a: a.int(), x), "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
     "Tensor with dtype torch.int32"),
    (lambda: vjp(lambda a: a, x)[1]((x, x)), "Expected pytree structure of cotangents to be the same as pytree "
     "structure of outputs to the function. cotangents: (*, *), primal output: *"),
    (lambda: vjp(lambda a: a * 2, x)[1](x[:2]), "Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and "
     "output[0] has a shape of torch.Size([3])."),
    (lambda: jvp(lambda a: a, x, x), JVP + "Expected primals to be a tuple. E.g. it should be valid to call f"),
    (lambda: jvp(lambda a: a, (x,), (x, x)), JVP + "Expected primals and tangents to have the same python structure"),
    (lambda: jvp(lambda a: a, (x,), (x[:2],)), "Trying to set a forward gradient that has a different size than that "
     "of the original Tensor, this is not supported. Tensor is of size [3] while the given forward gradient"),
    (lambda: jvp(lambda a: 3, (x,), (x,)), JVP + "expected f(*primals) to return only tensors, got unsupported"),
    (lambda: jvp(lambda: 3, (), ()), JVP + "Expected primals to contain at least one Tensor."),
    (lambda: jvp(lambda a: a, (3.0,), (x,)), JVP + "Expected primals to only contain Tensors, got <class 'float'>"),
    (lambda: jvp(lambda a: weft.ones(2), (x,), (x,), strict=True), "jvp(f, primals, tangents, strict=True): The output "
     "of f is independent of the inputs. This is not allowed with strict=True."),
    (lambda: jacrev(lambda a: 3)(x), "vjp(f, *primals): expected f(*primals) to return only tensors, got unsupported"),
    (lambda: jacfwd(lambda a: 3)(x), JVP + "expected f(*primals) to return only tensors, got unsupported type <class"),
    (lambda: linearize(lambda a: a, x)[1](x[:2]), "tangent:0 with shape torch.Size([2]) in flattened pytree doesn't "
     "match the shape torch.Size([3]) of the corresponding primal."),
    (lambda: linearize(lambda a: a, x)[1](x, x), "Expected the tangents (*, *) to have the same argspec"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_errors(call, text):
    with pytest.raises(RuntimeError, match=r"^" + re.escape(text)):
        call()


def test_errors_of_other_classes():
    with pytest.raises(ValueError, match=r"^Thing passed to transform API must be Tensor, got <class 'float'>"):
        grad(lambda a: a)(3.0)
    with pytest.raises(ValueError, match=r"^jacrev: `chunk_size` should be greater than 0"):
        jacrev(lambda a: a, chunk_size=0)
    whole = weft.tensor([1, 2])
    for primal, tangent, text in ((whole, whole, "primal"), (whole.float(), whole, "tangent")):
        with pytest.raises(
            ValueError, match=f"^Expected {text} to be floating point or complex, but got: torch.int64$"
        ):
            jvp(lambda a: a, (primal,), (tangent,))


def test_user_derivatives_have_no_forward_mode_unless_they_say():
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert grad(lambda a: Twice.apply(a).sum())(x).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"^You must implement the jvp function for custom"):
        jvp(Twice.apply, (x,), (x,))


def test_user_derivatives_in_forward_mode():
    class Product(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, times):
            ctx.save_for_backward(a, b)
            ctx.save_for_forward(a, b)
            ctx.times = times
            return a * b * times

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b * ctx.times, g * a * ctx.times, None

        @staticmethod
        def jvp(ctx, a_tangent, b_tangent, _):
            a, b = ctx.saved_tensors
            return (a_tangent * b + a * b_tangent) * ctx.times

    y = weft.tensor(Y)
    f = lambda a, b: Product.apply(a.sin(), b, 2.0)  # noqa: E731
    assert weft.allclose(jvp(f, (x, y), (y, x))[1], 2 * (x.cos() * y * y + x.sin() * x))
    assert weft.allclose(jacfwd(f)(x, y), jacrev(f)(x, y))
    assert weft.allclose(vmap(lambda t: jvp(lambda a: f(a, y), (x,), (t,))[1])(weft.eye(3)), jacrev(f)(x, y).t())


def test_checks_belong_to_derivatives_whose_function_nobody_needs():
    scores, targets = weft.randn(3, 4), weft.tensor([0, 1, 2])
    expected = -weft.eye(3, 4)
    assert weft.equal(vmap(grad(weft.nn.functional.nll_loss))(scores, targets), expected)
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        vmap(grad(weft.nn.functional.nll_loss))(scores, targets + 2 * targets.clamp(max=1)).tolist()
    inverses = vmap(grad(lambda a: weft.linalg.inv(a).sum()))(weft.eye(2).expand(3, 2, 2) * 2)
    assert inverses.tolist() == [[[-0.25, -0.25]] * 2] * 3
