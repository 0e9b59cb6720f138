"""Programs that write between forward and backward pass: `retain_grad`, `mark_dirty`, writes off the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.pairs import assert_same_outcome, leaf, numbers

pytestmark = pytest.mark.oracle

PROGRAMS: list[Callable[[Any], Any]] = []


def doubling(fw):
    class Doubling(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 10

    return Doubling


@PROGRAMS.append
def create_graph_no_retain(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = (w**3).sum()
    (g,) = fw.autograd.grad(loss, [w], create_graph=True, retain_graph=False)
    g.sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def create_graph_no_retain_exp(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = w.exp().sum()
    (g,) = fw.autograd.grad(loss, [w], create_graph=True, retain_graph=False)
    g.sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def retain_grad_twice(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    loss = h.sum()
    loss.backward()
    loss.backward()
    return (numbers(h.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_two_losses(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    (h * 2).sum().backward()
    (h * 3).sum().backward()
    return numbers(h.grad)


@PROGRAMS.append
def retain_grad_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    h.mul_(3)
    h.sum().backward()
    return (numbers(h.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_inplace_hook(fw):
    calls = []
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.register_hook(lambda g: calls.append(numbers(g)))
    h.retain_grad()
    h.mul_(3)
    h.register_hook(lambda g: calls.append(numbers(g)))
    h.sum().backward()
    return (numbers(h.grad), calls)


@PROGRAMS.append
def retain_grad_view_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    h.mul_(3)
    h.sum().backward()
    return (numbers(v.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_view_inplace2(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    v = h[:1]
    v.mul_(3)
    h.sum().backward()
    return (numbers(h.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_view_inplace3(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    v.mul_(3)
    h.sum().backward()
    return (numbers(v.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_view_inplace4(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    v.mul_(3)
    (v.sum() + h.sum()).backward()
    return (numbers(v.grad), numbers(w.grad))


@PROGRAMS.append
def retain_grad_setitem(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    h[0] = 5
    h.sum().backward()
    return (numbers(h.grad), numbers(w.grad))


@PROGRAMS.append
def retain_nograd_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    with fw.no_grad():
        h.mul_(3)
    h.sum().backward()
    return (numbers(h.grad), numbers(w.grad), h.requires_grad)


@PROGRAMS.append
def passed_nograd_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.sum().backward()
    with fw.no_grad():
        h.mul_(3)
    h.sum().backward()
    return (numbers(w.grad), h.requires_grad, h.grad_fn.name(), numbers(h))


@PROGRAMS.append
def spent_nograd_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w.exp()
    h.sum().backward()
    with fw.no_grad():
        h.mul_(3)
    result = h.requires_grad
    try:
        h.sum().backward()
    except RuntimeError:
        return (result, "err")


@PROGRAMS.append
def retain_view_refresh(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    h.mul_(3)
    (v * 2).sum().backward()
    return numbers(v.grad)


@PROGRAMS.append
def retain_view_refresh2(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    v * 5
    h.mul_(3)
    (v * 2).sum().backward()
    return numbers(v.grad)


@PROGRAMS.append
def retain_view_refresh3(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    v = h[:1]
    v.retain_grad()
    u = v * 5
    h.mul_(3)
    (v * 2 + u).sum().backward()
    return numbers(v.grad)


@PROGRAMS.append
def retain_twice_inplace(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    u = h * 2
    h.mul_(3)
    h.retain_grad()
    (u + h).sum().backward()
    return numbers(h.grad)


@PROGRAMS.append
def retains(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.retain_grad()
    a = h.retains_grad
    h.mul_(3)
    return (a, h.retains_grad)


@PROGRAMS.append
def dirty_view(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    h = w * 1
    v = h[:2]
    out = doubling(fw).apply(v)
    (h * fw.tensor([1.0, 2.0, 3.0], dtype=fw.float64)).sum().backward()
    return (numbers(w.grad), numbers(h), numbers(v), out is v)


@PROGRAMS.append
def dirty_view_returned(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    h = w * 1
    v = h[:2]
    out = doubling(fw).apply(v)
    out.sum().backward()
    return (numbers(w.grad), numbers(out))


@PROGRAMS.append
def dirty_base_of_a_view(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    h = w * 1
    v = h[:2]
    doubling(fw).apply(h)
    (v * 5).sum().backward()
    return (numbers(w.grad), numbers(v))


@PROGRAMS.append
def dirty_leaf(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    doubling(fw).apply(w)


@PROGRAMS.append
def dirty_view_of_a_leaf(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    doubling(fw).apply(w[:1])


@PROGRAMS.append
def dirty_without_gradient(fw):

    class G(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.mark_dirty(x)
            x.mul_(y)
            return x

        @staticmethod
        def backward(ctx, g):
            return (None, g * 7)

    w = leaf(fw, 1.0, 2.0, 3.0)
    x = leaf(fw, 1.0, 2.0, 3.0, grad=False)
    out = G.apply(x, w)
    x.sum().backward()
    return (numbers(w.grad), out is x, x.requires_grad)


@PROGRAMS.append
def dirty_view_without_gradient(fw):

    class G(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.mark_dirty(x)
            x.mul_(y)
            return x

        @staticmethod
        def backward(ctx, g):
            return (None, g * 7)

    w = leaf(fw, 1.0, 2.0, 3.0)
    b = leaf(fw, 1.0, 2.0, 3.0, 4.0, grad=False)
    G.apply(b[:3], w)
    b.sum().backward()
    return (numbers(w.grad), b.requires_grad)


@PROGRAMS.append
def dirty_and_not_returned(fw):

    class G(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g

    w = leaf(fw, 1.0, 2.0, 3.0)
    G.apply(w * 1)


@PROGRAMS.append
def dirty_twice(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    h = w * 1
    G = doubling(fw)
    G.apply(h)
    G.apply(h)
    h.sum().backward()
    return (numbers(w.grad), numbers(h))


@PROGRAMS.append
def dirty_result(fw):
    w = leaf(fw, 1.0, 2.0, 3.0)
    h = w * 1
    out = doubling(fw).apply(h)
    out.sum().backward()
    return (numbers(w.grad), out is h, h.grad_fn.name())


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.__name__ for program in PROGRAMS])
def test_it_does_as_in_pytorch(program):
    assert_same_outcome(program)
