"""Which values belong to which transform: all pairs, the inner function made inside and outside of the outer one."""

from __future__ import annotations

from typing import Any

import pytest

import weft as torch
from weft._autograd import levels
from weft.autograd import forward_ad, functional
from weft.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

POINT, AT = 0.3, 2.0
ONE = torch.tensor(1.0)


def sine(x):
    return x.sin()


def tangent_of(x) -> Any:
    return forward_ad.unpack_dual(x).tangent


def outer_graph(x):
    """The derivative by a backward pass over a graph of leaves."""
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        out = sine(leaf)
    return lambda y: torch.autograd.grad(out, leaf, y, create_graph=True)[0]


def batched_pass(x):
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        out = sine(leaf)

    def function(y):
        (gradients,) = torch.autograd.grad(out, leaf, y[None], create_graph=True, is_grads_batched=True)
        assert gradients is not None
        return gradients[0]

    return function


def pullback(x):
    function = vjp(sine, x)[1]
    return lambda y: function(y)[0]


def pullback_of_grad(x):
    function = vjp(grad(lambda x: -x.cos()), x)[1]
    return lambda y: function(y)[0]


def pullback_of_pushed(x):
    function = vjp(lambda y: jvp(sine, (x,), (y,))[1], x)[1]
    return lambda y: function(y)[0]


def pullback_in_no_grad(x):
    with torch.no_grad():
        return pullback(x)


def pullback_for_all(x):
    """Called under `vmap`."""
    function = vjp(sine, x)[1]
    return lambda y: vmap(function)(torch.stack([y, y]))[0].mean()


def pullback_of_pullback(x):
    """Made within the function of another transform, which has ended."""
    kept = []

    def keeping(x):
        kept.append(vjp(lambda z: z.sin() + 0 * x, x)[1])
        return x

    vjp(keeping, x)
    return lambda y: kept[0](y)[0]


LAYER = torch.nn.Linear(1, 1, bias=False)


def module(x):
    """A parameter is the argument."""
    function = vjp(lambda p: functional_call(LAYER, {"weight": p}, (torch.ones(1, 1),)).sin().sum(), x.reshape(1, 1))[1]
    return lambda y: function(y)[0].sum()


INNER = {
    "vjp": pullback,
    "vjp of grad": pullback_of_grad,
    "vjp of jvp": pullback_of_pushed,
    "vjp in no_grad": pullback_in_no_grad,
    "vjp under vmap": pullback_for_all,
    "escaped vjp": pullback_of_pullback,
    "module": module,
    "linearize": lambda x: linearize(sine, x)[1],
    "linearize of grad": lambda x: linearize(grad(lambda x: -x.cos()), x)[1],
    "jvp": lambda x: lambda y: jvp(sine, (x,), (y,))[1],
    "autograd.grad": outer_graph,
    "is_grads_batched": batched_pass,
    "functional.vjp": lambda x: lambda y: functional.vjp(sine, x, y, create_graph=True)[1],
    "functional.jvp": lambda x: lambda y: functional.jvp(sine, x, y, create_graph=True)[1],
}
"""The function y -> sin'(x) y, made at x."""


def by_backward(function):
    def derivative(y):
        leaf = y.clone().requires_grad_()
        function(leaf).backward()
        return leaf.grad

    return derivative


def by_autograd(function):
    def derivative(y):
        leaf = y.clone().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf)[0]

    return derivative


def by_dual_tensors(function):
    def derivative(y):
        with forward_ad.dual_level():
            return tangent_of(function(forward_ad.make_dual(y, torch.ones_like(y))))

    return derivative


def by_dual_tensors_in_no_grad(function):
    @torch.no_grad()
    def derivative(y):
        return by_dual_tensors(function)(y)

    return derivative


OUTER = {
    "grad": grad,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "vjp": lambda function: lambda y: vjp(function, y)[1](torch.ones_like(y))[0],
    "jvp": lambda function: lambda y: jvp(function, (y,), (torch.ones_like(y),))[1],
    "linearize": lambda function: lambda y: linearize(function, y)[1](torch.ones_like(y)),
    "vmap of grad": lambda function: lambda y: vmap(grad(function))(torch.stack([y, y])).mean(),
    "vmap of jvp": lambda function: lambda y: vmap(OUTER["jvp"](function))(torch.stack([y, y])).mean(),
    "grad of vmap": lambda function: grad(lambda y: vmap(function)(torch.stack([y, y])).mean()),
    "jvp of vmap": lambda function: OUTER["jvp"](lambda y: vmap(function)(torch.stack([y, y])).mean()),
    "backward": by_backward,
    "autograd.grad": by_autograd,
    "dual tensors": by_dual_tensors,
    "dual tensors in no_grad": by_dual_tensors_in_no_grad,
    "functional.jacobian": lambda function: lambda y: functional.jacobian(function, y),
    "functional.jvp": lambda function: lambda y: functional.jvp(function, y, torch.ones_like(y))[1],
}
"""The derivative of a function of a scalar."""

ON_LEAVES = {"autograd.grad", "is_grads_batched", "functional.vjp", "functional.jvp"}
"""The inner functions that depend on leaves."""


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_function_made_outside(inner, outer):
    slope = torch.tensor(POINT).cos().item()
    function = INNER[inner](torch.tensor(POINT))
    y = torch.tensor(AT)
    first = OUTER[outer](lambda y: function(y) ** 3)(y)
    assert first.item() == pytest.approx(3 * slope**3 * AT**2, rel=1e-5)
    assert inner in ON_LEAVES or not first.requires_grad
    plain = function(y)
    assert plain.item() == pytest.approx(slope * AT, rel=1e-5)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_function_made_inside(inner, outer):
    slope = torch.tensor(POINT).cos().item()
    derivative = OUTER[outer](lambda y: INNER[inner](torch.tensor(POINT))(y) ** 3)(torch.tensor(AT))
    assert derivative.item() == pytest.approx(3 * slope**3 * AT**2, rel=1e-5)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", [name for name in INNER if name not in ON_LEAVES])
def test_a_function_made_inside_at_what_is_differentiated(inner, outer):
    derivative = OUTER[outer](lambda x: INNER[inner](x)(torch.tensor(AT)) ** 2)(torch.tensor(POINT))
    x = torch.tensor(POINT)
    assert derivative.item() == pytest.approx((-2 * x.cos() * x.sin()).item() * AT**2, rel=1e-5)


@pytest.mark.parametrize("second", OUTER)
@pytest.mark.parametrize("first", ["grad", "jacrev", "jacfwd", "jvp", "vjp", "vmap of grad"])
@pytest.mark.parametrize("inner", ["vjp", "linearize"])
def test_three_levels(inner, first, second):
    slope = torch.tensor(POINT).cos().item()
    function = INNER[inner](torch.tensor(POINT))
    derivative = OUTER[second](OUTER[first](lambda y: function(y) ** 3))(torch.tensor(AT))
    assert derivative.item() == pytest.approx(6 * slope**3 * AT, rel=1e-5)


def test_tangents_do_not_care_for_no_grad():
    """As in PyTorch: what is computed in `no_grad` is constant for backward passes only."""

    def function(x):
        with torch.no_grad():
            constant = x**2
        return x - constant

    x = torch.tensor(2.0)
    assert grad(function)(x).item() == 1
    assert jvp(function, (x,), (ONE,))[1].item() == -3
    assert jacfwd(function)(x).item() == -3
    assert OUTER["linearize"](function)(x).item() == -3
    assert by_dual_tensors(function)(x).item() == -3
    assert jvp(lambda x: x.detach() * x, (x,), (ONE,))[1].item() == 2


def test_tangents_through_what_was_made_in_no_grad():
    with forward_ad.dual_level():
        with torch.no_grad():
            dual = forward_ad.make_dual(torch.tensor(2.0), ONE)
            assert not dual.requires_grad
            assert not (dual * dual).requires_grad
        tangent = tangent_of(dual**3)
        assert tangent.item() == 12
        assert not tangent.requires_grad
    with torch.inference_mode(), forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor(2.0), ONE)
        assert tangent_of(dual * dual) is None


def test_tangents_through_a_backward_pass():
    """Such a pass records its gradients off the tape, and frees what they were computed from."""
    with forward_ad.dual_level():
        leaf = torch.tensor(0.3, requires_grad=True)
        dual = forward_ad.make_dual(leaf, ONE)
        out = dual.sin() ** 2
        (gradient,) = torch.autograd.grad(out, leaf)
        assert gradient is not None
        assert not gradient.requires_grad
        assert tangent_of(gradient).item() == pytest.approx(2 * torch.tensor(0.6).cos().item())
        assert tangent_of(out).item() == pytest.approx(torch.tensor(0.6).sin().item())
    assert tangent_of(gradient) is None


@pytest.mark.parametrize("function", [jacfwd, lambda f: lambda x: linearize(f, x)[1](ONE), OUTER["jvp"]])
def test_forward_over_a_backward_pass_that_frees(function):
    def inner(x):
        leaf = torch.tensor(0.5, requires_grad=True)
        out = (leaf.sin() * x) ** 2
        (gradient,) = torch.autograd.grad(out, leaf)
        return gradient + out.detach()

    x = torch.tensor(2.0)
    assert function(inner)(x).item() == pytest.approx(2 * 2 * torch.tensor(1.0).sin().item(), rel=1e-5)


def test_a_pullback_outlives_backward_passes_of_the_caller():
    w = torch.tensor(1.5, requires_grad=True)
    outputs, function = vjp(lambda x: (w * x).sin(), torch.tensor(0.3))
    out, pushed = linearize(lambda x: (w * x).sin(), torch.tensor(0.3))
    expected = 1.5 * torch.tensor(0.45).cos().item()
    (outputs + out + function(ONE)[0] + pushed(ONE)).backward()
    for _ in range(2):
        assert function(ONE)[0].item() == pytest.approx(expected)
        assert pushed(ONE).item() == pytest.approx(expected)


def test_second_derivatives_of_a_function_made_outside():
    function = INNER["vjp"](torch.tensor(POINT))
    slope = torch.tensor(POINT).cos().item()
    assert hessian(lambda y: function(y) ** 3)(torch.tensor(AT)).item() == pytest.approx(6 * slope**3 * AT, rel=1e-5)
    # the product of a Hessian with a vector, by its rows
    _, product = vjp(grad(lambda x: (x**3).sum()), torch.ones(2))
    assert jacrev(lambda v: product(v)[0])(torch.ones(2)).tolist() == [[6, 0], [0, 6]]
    assert jacfwd(lambda v: product(v)[0])(torch.ones(2)).tolist() == [[6, 0], [0, 6]]


def test_an_inner_derivative_does_not_see_what_is_computed_outside():
    """The level of the inner function does not include the argument of the outer one (perturbation confusion)."""
    assert grad(lambda x: x * grad(lambda y: x + y)(torch.tensor(1.0)))(torch.tensor(1.0)).item() == 1
    assert OUTER["jvp"](lambda x: x * OUTER["jvp"](lambda y: x * y)(x))(torch.tensor(3.0)).item() == 6
    with torch.no_grad():
        assert OUTER["jvp"](lambda x: x * OUTER["jvp"](lambda y: x * y)(x))(torch.tensor(3.0)).item() == 6


def test_nothing_is_left_of_a_level():
    function = INNER["vjp"](torch.tensor(POINT))
    result = grad(lambda y: function(y) ** 2)(torch.tensor(AT))
    assert not result.requires_grad
    assert not levels._live

    def failing(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        grad(failing)(torch.tensor(AT))
    assert not levels._live
