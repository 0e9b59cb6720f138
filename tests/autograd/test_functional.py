"""`autograd.functional`: Jacobians, Hessians and products, with PyTorch's texts."""

from __future__ import annotations

import re

import pytest

import weft
from weft.autograd import functional
from weft.func import hessian as func_hessian
from weft.func import jacrev

X, Y = weft.tensor([0.3, -0.7, 1.1]), weft.tensor([0.5, 2.0])
V, W = weft.tensor([1.0, 2.0, -1.0]), weft.tensor([0.5, -1.0])


def one(a):
    return a.sin() * a.sum()


def two(a, b):
    return a.exp().sum() * b, a.sum() * b.prod()


def scalar(a):
    return (a.sin() * a).sum()


def scalar_of_two(a, b):
    return a.exp().sum() * b.prod()


def assert_near(result, expected):
    if isinstance(expected, tuple):
        assert isinstance(result, tuple)
        assert len(result) == len(expected)
        for each in zip(result, expected, strict=True):
            assert_near(*each)
    else:
        assert weft.allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": True}, {"create_graph": True}, {"vectorize": True, "strategy": "forward-mode"}]
)
def test_jacobians(options):
    assert_near(functional.jacobian(one, X, **options), jacrev(one)(X))
    assert_near(functional.jacobian(two, (X, Y), **options), jacrev(two, (0, 1))(X, Y))
    independent = functional.jacobian(lambda a, b: a * 2, (X, Y), **options)
    assert_near(independent, (2 * weft.eye(3), weft.zeros(3, 2)))


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}]
)
def test_hessians(options):
    assert_near(functional.hessian(scalar, X, **options), func_hessian(scalar)(X))
    expected = func_hessian(scalar_of_two, (0, 1))(X, Y)
    assert_near(functional.hessian(scalar_of_two, (X, Y), **options), expected)


def test_products():
    jacobian, second = jacrev(one)(X), func_hessian(scalar)(X)
    assert_near(functional.vjp(one, X, V), (one(X), V @ jacobian))
    assert_near(functional.jvp(one, X, V), (one(X), jacobian @ V))
    assert_near(functional.vhp(scalar, X, V), (scalar(X), V @ second))
    assert_near(functional.hvp(scalar, X, V), (scalar(X), second @ V))
    (aa, ab), (ba, bb) = func_hessian(scalar_of_two, (0, 1))(X, Y)
    expected = (aa @ V + ab @ W, ba @ V + bb @ W)
    for product in (functional.vhp, functional.hvp):
        assert_near(product(scalar_of_two, (X, Y), (V, W))[1], expected)


def test_vectors_are_ones_for_single_elements():
    for product in (functional.vjp, functional.jvp):
        assert_near(product(lambda a: a.exp(), X[0]), (X[0].exp(), X[0].exp()))
    assert_near(functional.vjp(scalar, X)[1], X.cos() * X + X.sin())


def test_results_are_on_the_tape_only_if_asked_for():
    x = X.clone().requires_grad_()
    for create_graph in (False, True):
        jacobian = functional.jacobian(one, x, create_graph)
        results = [jacobian, *functional.vjp(one, x, V, create_graph), *functional.hvp(scalar, x, V, create_graph)]
        assert all(result.requires_grad is create_graph for result in results)
    functional.jvp(one, x, V, create_graph=True)[1].sum().backward()
    expected = weft.autograd.grad((jacrev(one)(x) @ V).sum(), x)[0]
    assert_near(x.grad, expected)


def constant(a):
    return weft.ones(3)


def linear(a):
    return a.sum()


STRICT = [
    (lambda: functional.vjp(constant, X, V, strict=True), "Output 0 of the user-provided function does not require"),
    (lambda: functional.jacobian(constant, X, strict=True), "Output 0 of the user-provided function does not require"),
    (lambda: functional.vjp(lambda a, b: a, (X, Y), V, strict=True), "The output of the user-provided function is "
     "independent of input 1. This is not allowed in strict mode."),
    (lambda: functional.jacobian(lambda a, b: a, (X, Y), strict=True), "Output 0 of the user-provided function is "
     "independent of input 1. This is not allowed in strict mode."),
    (lambda: functional.jacobian(lambda a: 2 * a, X, True, True), "The jacobian of the user-provided function is "
     "independent of input 0. This is not allowed in strict mode when create_graph=True."),
    (lambda: functional.hessian(linear, X, strict=True), "While computing the hessian, found that the jacobian of the "
     "user-provided function with respect to input 0 is independent of the input. This is not allowed in strict mode."),
    (lambda: functional.hvp(linear, X, V, strict=True), "While computing the hessian, found that the jacobian of the "),
]  # fmt: skip
MISFITS = [
    (lambda: functional.vjp(one, X), "The vector v can only be None if the user-provided function returns a single Te"),
    (lambda: functional.jvp(one, X), "The vector v can only be None if the input to the user-provided function is"),
    (lambda: functional.vjp(one, X, W), "v has invalid size: should be torch.Size([3]) but got torch.Size([2])."),
    (lambda: functional.jvp(two, (X, Y), (V, V)), "Entry 1 in v has invalid size: should be torch.Size([2]) but"),
    (lambda: functional.jvp(one, X, (V, V)), "The given v should contain a single Tensor."),
    (lambda: functional.jvp(two, (X, Y), V), "v is a tuple of invalid length: should be 2 but got 1."),
    (lambda: functional.hessian(lambda a: (a, a), X), "The function given to hessian should return a single Tensor"),
    (lambda: functional.hvp(one, X, V), "The Tensor returned by the function given to hvp should contain a single el"),
    (lambda: functional.jacobian(one, X, strict=True, vectorize=True), "torch.autograd.functional.jacobian: "
     "`strict=True` and `vectorized=True` are not supported together."),
    (lambda: functional.jacobian(one, X, strict=True, strategy="forward-mode"), "torch.autograd.functional.jacobian: "
     '`strict=True` and `strategy="forward-mode"` are not supported together (yet).'),
    (lambda: functional.jacobian(one, X, strategy="forward-mode"), "Computing Jacobian using forward-AD or forward-ov"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), STRICT + MISFITS)
def test_errors(call, text):
    with pytest.raises(RuntimeError, match="^" + re.escape(text)):
        call()


def test_errors_of_other_classes():
    with pytest.raises(
        TypeError, match=r"^The inputs given to vjp must be either a Tensor or a tuple of Tensors but the"
    ):
        functional.vjp(one, 3.0)
    with pytest.raises(TypeError, match=r"^The outputs of the user-provided function given to jacobian must be either"):
        functional.jacobian(lambda a: (a, 3), X)
    with pytest.raises(NotImplementedError):
        functional.jacobian(one, X, strategy="forward-mode")
    with pytest.raises(AssertionError, match=r"^Expected strategy to be either"):
        functional.hessian(scalar, X, outer_jacobian_strategy="x")
