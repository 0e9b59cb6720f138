"""Gradients of convolutions, given only the shape of what they are taken by."""

from __future__ import annotations

import pytest

import weft
from weft.nn import functional as F
from weft.nn import grad


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_are_those_of_a_backward_pass(n: int):
    weft.manual_seed(0)
    x = weft.randn(2, 4, *(7, 6, 5)[:n], dtype=weft.float64, requires_grad=True)
    w = weft.randn(6, 2, *(3, 2, 2)[:n], dtype=weft.float64, requires_grad=True)
    options = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    y = getattr(F, f"conv{n}d")(x, w, None, **options)
    g = weft.randn(*y.shape, dtype=weft.float64)
    by_x, by_w = weft.autograd.grad(y, [x, w], g)
    assert weft.allclose(getattr(grad, f"conv{n}d_input")(x.shape, w, g, **options), by_x)
    assert weft.allclose(getattr(grad, f"conv{n}d_weight")(x, w.shape, g, **options), by_w)


def test_gradients_have_gradients():
    w, g = weft.ones(1, 1, 2, requires_grad=True), weft.ones(1, 1, 3)
    grad.conv1d_input((1, 1, 4), w, g).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[[3, 3]]]
    with weft.no_grad():
        assert not grad.conv1d_input((1, 1, 4), w, g).requires_grad
