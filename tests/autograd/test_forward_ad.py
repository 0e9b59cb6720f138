"""Dual tensors."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.autograd import forward_ad
from weft.func import functional_call, vmap

X, T = weft.tensor([0.3, -0.7, 1.1]), weft.tensor([1.0, 2.0, -1.0])


def test_tangents_go_along():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, T)
        primal, tangent = forward_ad.unpack_dual((dual * dual).sin())
        assert weft.allclose(primal, (X * X).sin())
        assert weft.allclose(tangent, (X * X).cos() * 2 * X * T)
        assert not primal.requires_grad
        assert not tangent.requires_grad
        assert forward_ad.unpack_dual(primal).tangent is None
        assert forward_ad.unpack_dual(dual.detach()).tangent is None
        assert forward_ad.unpack_dual(X).tangent is None
        after = dual * 2
    assert forward_ad.unpack_dual(after).tangent is None


def test_views_and_writes_pass_tangents():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, T)
        y = weft.zeros(4)
        y[1:].copy_(dual)
        y.mul_(2)
        assert forward_ad.unpack_dual(y).tangent.tolist() == [0, *(2 * T).tolist()]
        one, other = dual.sort()
        assert weft.equal(forward_ad.unpack_dual(one).tangent, T[other])


def test_it_is_differentiable_backward():
    w = X.clone().requires_grad_()
    with forward_ad.dual_level():
        out = forward_ad.make_dual(w, T) ** 3
        primal, tangent = forward_ad.unpack_dual(out)
        assert forward_ad.unpack_dual(primal).tangent is None
    tangent.sum().backward()
    assert weft.allclose(w.grad, 6 * X * T)
    assert weft.allclose(weft.autograd.grad(primal.sum(), w)[0], 3 * X**2)


def test_parameters_of_a_module():
    model, x = nn.Linear(3, 2), weft.randn(4, 3)
    tangents = {name: weft.randn_like(p) for name, p in model.named_parameters()}
    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(p, tangents[name]) for name, p in model.named_parameters()}
        tangent = forward_ad.unpack_dual(functional_call(model, duals, (x,))).tangent
    assert weft.allclose(tangent, x @ tangents["weight"].t() + tangents["bias"], atol=1e-6)


def test_it_runs_under_vmap():
    def derivative(tangent):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(X, tangent).square()).tangent

    assert weft.allclose(vmap(derivative)(weft.eye(3)), weft.diag(2 * X))


def test_levels_begin_and_end():
    with pytest.raises(RuntimeError, match=r"^Trying to create a dual Tensor for forward AD but no level exists"):
        forward_ad.make_dual(X, T)
    with pytest.raises(RuntimeError, match=r"^Dual level must be a positive number"):
        forward_ad.exit_dual_level()
    assert forward_ad.enter_dual_level() == 0
    with pytest.raises(RuntimeError, match=r"^Nested forward mode AD is not supported at the moment"):
        forward_ad.enter_dual_level()
    with pytest.raises(RuntimeError, match=r"^Trying to exit a forward AD level that was not the last one"):
        forward_ad.exit_dual_level(level=3)
    forward_ad.exit_dual_level(level=0)


def test_tensors_that_cannot_be_dual():
    with forward_ad.dual_level():
        with pytest.raises(ValueError, match=r"^Expected primal to be floating point or complex, but got: torch.int64"):
            forward_ad.make_dual(weft.arange(3), T)
        with pytest.raises(ValueError, match=r"^Expected tangent to be floating point or complex"):
            forward_ad.make_dual(X, weft.arange(3))
        with pytest.raises(
            RuntimeError, match=r"^Trying to set a forward gradient that has a different size than that"
        ):
            forward_ad.make_dual(X, T[:2])
        with pytest.raises(
            RuntimeError, match=r"^Making a dual Tensor based on a Tensor that already has a forward gr"
        ):
            forward_ad.make_dual(forward_ad.make_dual(X, T) * 2, T)
