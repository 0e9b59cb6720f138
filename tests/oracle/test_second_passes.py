"""Programs that pass a graph, or a part of it, more than once: what is refused, what gradients and hooks see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.pairs import assert_same_outcome, leaf, numbers

pytestmark = pytest.mark.oracle

PROGRAMS: list[Callable[[Any], Any]] = []


@PROGRAMS.append
def sum_twice(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = w.sum()
    loss.backward()
    loss.backward()
    return numbers(w.grad)


@PROGRAMS.append
def mul_twice(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = (w * 2).sum()
    loss.backward()
    loss.backward()


@PROGRAMS.append
def shared_add(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    (h * h).sum().backward()
    (h * 3).sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def shared_mul(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w * 2
    (h * h).sum().backward()
    (h + 3).sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def maml(fw):
    w = leaf(fw, 1.0, 2.0)
    f = w.sin()
    (g,) = fw.autograd.grad((f * f).sum(), [f])
    ((f - 0.1 * g) ** 2).sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def grad_input_then(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w.exp()
    loss = (h * h).sum()
    (g,) = fw.autograd.grad(loss, [h])
    h.sum().backward()
    return (numbers(g), numbers(w.grad))


@PROGRAMS.append
def grad_input_again(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w.exp()
    loss = (h * h).sum()
    (_g,) = fw.autograd.grad(loss, [h])
    fw.autograd.grad(loss, [w])


@PROGRAMS.append
def allow_unused_spent(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = w.exp().sum()
    loss.backward()
    return fw.autograd.grad(loss, [w], allow_unused=True)


@PROGRAMS.append
def backward_inputs_spent(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = w.exp().sum()
    loss.backward()
    loss.backward(inputs=[w])


@PROGRAMS.append
def disjoint(fw):
    a = leaf(fw, 1.0)
    b = leaf(fw, 2.0)
    loss = a.exp().sum() + (b + 1).sum()
    loss.backward()
    (g,) = fw.autograd.grad(loss, [b])
    return numbers(g)


@PROGRAMS.append
def disjoint2(fw):
    a = leaf(fw, 1.0)
    b = leaf(fw, 2.0)
    loss = a.exp().sum() + (b + 1).sum()
    loss.backward(inputs=[b])
    loss.backward()
    return (numbers(a.grad), numbers(b.grad))


@PROGRAMS.append
def disjoint3(fw):
    a = leaf(fw, 1.0)
    b = leaf(fw, 2.0)
    loss = a.exp().sum() + (b + 1).sum()
    loss.backward(inputs=[a])
    loss.backward(inputs=[b])
    loss.backward()


@PROGRAMS.append
def retain_mix(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = w.exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    g1 = numbers(w.grad)
    try:
        loss.backward()
    except RuntimeError:
        return (g1, "err")
    return g1


@PROGRAMS.append
def create_graph(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = (w**3).sum()
    (g,) = fw.autograd.grad(loss, [w], create_graph=True)
    (h,) = fw.autograd.grad(g.sum(), [w], create_graph=True)
    h.sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def gan(fw):
    gw = leaf(fw, 0.5, 0.6)
    dw = leaf(fw, 0.3, 0.4)
    fake = gw.tanh()
    d = (fake.detach() * dw).sigmoid().sum()
    d.backward()
    gg = (fake * dw).sigmoid().sum()
    gg.backward()
    return (numbers(gw.grad), numbers(dw.grad))


@PROGRAMS.append
def gan_nodetach(fw):
    gw = leaf(fw, 0.5, 0.6)
    dw = leaf(fw, 0.3, 0.4)
    fake = gw.tanh()
    d = (fake * dw).sigmoid().sum()
    d.backward()
    gg = (fake * dw).sigmoid().sum()
    gg.backward()


@PROGRAMS.append
def hooks_twice(fw):
    calls = []
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    h.register_hook(lambda g: calls.append(numbers(g)))
    w.register_hook(lambda g: calls.append(numbers(g)))
    loss = h.sum()
    loss.backward()
    loss.backward()
    return (calls, numbers(w.grad))


@PROGRAMS.append
def hook_shared_fresh_and_passed(fw):
    calls = []
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    first = h.sum()
    first.backward()
    h.register_hook(lambda g: calls.append(numbers(g)))
    (first + (h * h).sum()).backward()
    return (calls, numbers(w.grad))


@PROGRAMS.append
def private_grad(fw):
    p = fw.nn.Parameter(leaf(fw, 1.0, 2.0, grad=False))
    p._grad = fw.ones_like(p)
    a = numbers(p.grad)
    p.grad = None
    return (a, p._grad)


@PROGRAMS.append
def function_twice(fw):

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * 3

    w = leaf(fw, 1.0, 2.0)
    loss = F.apply(w).sum()
    loss.backward()
    loss.backward()
    return numbers(w.grad)


@PROGRAMS.append
def function_saved_twice(fw):

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            (_x,) = ctx.saved_tensors
            return g * 3

    w = leaf(fw, 1.0, 2.0)
    loss = F.apply(w).sum()
    loss.backward()
    loss.backward()
    return numbers(w.grad)


@PROGRAMS.append
def function_two_outputs(fw):
    n = []

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 3, x * 4)

        @staticmethod
        def backward(ctx, g, h):
            n.append((numbers(g), numbers(h)))
            return g * 3 + h * 4

    w = leaf(fw, 1.0, 2.0)
    a, b = F.apply(w)
    a.sum().backward()
    b.sum().backward()
    (a.sum() + b.sum()).backward()
    return (numbers(w.grad), n)


@PROGRAMS.append
def saved_access_after(fw):
    ctxs = []

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctxs.append(ctx)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * 3

    w = leaf(fw, 1.0, 2.0)
    loss = F.apply(w).sum()
    loss.backward()
    ctxs[0].saved_tensors


@PROGRAMS.append
def unbind_parts(fw):
    w = leaf(fw, 1.0, 2.0)
    a, b = (w * 1.0).unbind(0)
    a.backward()
    b.backward()


@PROGRAMS.append
def unbind_leaf_parts(fw):
    w = leaf(fw, 1.0, 2.0)
    a, b = w.unbind(0)
    a.backward()
    b.backward()
    (a + b).backward()
    return numbers(w.grad)


@PROGRAMS.append
def aminmax_parts(fw):
    w = leaf(fw, 1.0, 2.0)
    a, b = fw.aminmax(w)
    a.backward()
    b.backward()
    return numbers(w.grad)


@PROGRAMS.append
def var_mean_parts(fw):
    w = leaf(fw, 1.0, 2.0)
    a, b = fw.var_mean(w)
    b.backward()
    a.backward()
    return numbers(w.grad)


@PROGRAMS.append
def eigh_parts(fw):
    w = fw.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=fw.float64, requires_grad=True)
    a, _b = fw.linalg.eigh(w)
    a.sum().backward()
    a.sum().backward()


@PROGRAMS.append
def split_parts(fw):
    w = leaf(fw, 1.0, 2.0, 3.0, 4.0)
    h = w + 1
    a, b = h.split(2)
    a.sum().backward()
    b.sum().backward()
    (a * b).sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def sort_twice(fw):
    w = leaf(fw, 1.0, 2.0)
    v, _i = w.sort()
    v.sum().backward()
    v.sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def leaf_inplace_then_grad(fw):
    w = leaf(fw, 1.0, 2.0)
    loss = (w * 3).sum()
    with fw.no_grad():
        w.add_(1)
    (g,) = fw.autograd.grad(loss, [w])
    return numbers(g)


@PROGRAMS.append
def optimizer_between(fw):
    w = fw.nn.Parameter(leaf(fw, 1.0, 2.0, grad=False))
    out = fw.optim.SGD([w], lr=0.1)
    loss = (w + 1).sum()
    loss.backward()
    out.step()
    loss.backward()
    return (numbers(w.grad), numbers(w))


@PROGRAMS.append
def nested_function(fw):

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with fw.enable_grad():
                y = x.detach().requires_grad_()
                z = (y * y).sum()
                (gg,) = fw.autograd.grad(z, [y])
            return gg * g

    w = leaf(fw, 1.0, 2.0)
    loss = F.apply(w.sin()).sum()
    loss.backward()
    return numbers(w.grad)


@PROGRAMS.append
def root_given_twice(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w + 1
    fw.autograd.backward([h.sum(), h.sum()])
    h.sum().backward()
    return numbers(w.grad)


@PROGRAMS.append
def partial_error(fw):
    w = leaf(fw, 1.0, 2.0)
    u = leaf(fw, 1.0, 2.0)
    loss = w.exp().sum()
    loss.backward()
    try:
        (loss + u.sum()).backward()
    except RuntimeError:
        return ("err",)
    return numbers(u.grad)


@PROGRAMS.append
def grad_two_targets(fw):
    w = leaf(fw, 1.0, 2.0)
    h = w.exp()
    loss = (h * h).sum()
    a, b = fw.autograd.grad(loss, [h, w])
    try:
        h.sum().backward()
    except RuntimeError:
        return (numbers(a), numbers(b), "err")
    return (numbers(a), numbers(b))


@PROGRAMS.append
def undefined_then(fw):

    class F(fw.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return None

    w = leaf(fw, 1.0, 2.0)
    h = w.exp()
    loss = F.apply(h).sum()
    loss.backward()
    result = numbers(w.grad)
    try:
        h.sum().backward()
    except RuntimeError:
        return (result, "err")
    return (result, numbers(w.grad))


@PROGRAMS.append
def total_loop(fw):
    w = leaf(fw, 1.0, 2.0)
    total = 0
    for _ in range(3):
        loss = (w * w).sum()
        loss.backward()
        total = total + loss.detach()
    return (numbers(total), numbers(w.grad))


@PROGRAMS.append
def inplace_total(fw):
    w = leaf(fw, 1.0, 2.0)
    total = fw.zeros((), dtype=fw.float64)
    for _ in range(3):
        loss = (w + 1).sum()
        loss.backward()
        total = total + loss
    total.backward()
    return (numbers(total), numbers(w.grad))


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.__name__ for program in PROGRAMS])
def test_it_does_as_in_pytorch(program):
    assert_same_outcome(program)
