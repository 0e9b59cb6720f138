"""What a backward pass leaves of the graph: no arrays, links that can be passed again, and what was not executed."""

from __future__ import annotations

import gc
import itertools

import jax
import pytest

import weft
from weft.autograd import grad
from weft.errors import GradientError


def leaf(*numbers):
    return weft.tensor(numbers, dtype=weft.float64, requires_grad=True)


pytestmark = pytest.mark.compiled  # what keeps arrays alive is counted in those of XLA


def live_arrays():
    gc.collect()
    return len(jax.live_arrays())


# --- memory ---


@pytest.mark.parametrize("read_first", [False, True])
def test_a_kept_loss_keeps_no_activations(read_first):
    weight, kept, counts = weft.ones(8, 8, requires_grad=True), [], []
    for _ in range(6):
        x = weft.ones(8, 8)
        h = (x @ weight).tanh() + 1
        loss = (h.exp() * h).sum()
        if read_first:
            loss.item()
        loss.backward()
        weight.grad.tolist()
        weight.grad = None
        with weft.no_grad():
            weight.sub_(0.01)
        kept.append(loss)
        del x, h, loss
        counts.append(live_arrays())
    # The loss itself, once what the program takes again and again lies on its device.
    assert [b - a for a, b in itertools.pairwise(counts[1:])] == [1] * 4


def test_a_kept_intermediate_keeps_nothing_before_it():
    weight = weft.ones(8, 8, requires_grad=True)
    weight.tolist()
    before = live_arrays()
    h = (weight * weft.ones(8, 8).exp()).sin().exp()
    h.sum().backward()
    h.tolist()
    weight.grad = None
    assert live_arrays() == before + 1


def test_a_running_total_keeps_no_graphs():
    weight, total, counts = weft.ones(8, 8, requires_grad=True), 0, []
    for _ in range(4):
        loss = (weight.exp() * weight).sum()
        loss.backward()
        total = total + loss.detach()
        total.item()
        del loss
        counts.append(live_arrays())
    assert counts[1] == counts[3]


# --- links ---


def test_what_saved_nothing_is_passed_again_and_again():
    w = leaf(1.0, 2.0)
    loss = (w + 1).neg().reshape(2, 1).sum()
    for _ in range(3):
        loss.backward()
    assert w.grad.tolist() == [-3, -3]
    assert w.tolist() == [1, 2]


def test_a_pass_that_is_refused_delivers_nothing():
    w, u = leaf(1.0), leaf(2.0)
    spent = w.exp().sum()
    spent.backward()
    w.grad = None
    with pytest.raises(GradientError, match=r"^Trying to backward through the graph a second time"):
        (u.sum() + spent).backward()
    assert u.grad is None
    assert w.grad is None


def test_what_was_not_executed_is_not_freed():
    w = leaf(1.0, 2.0)
    f = w * w
    (g,) = grad((f * f).sum(), [f])
    ((f - 0.1 * g) ** 2).sum().backward()  # first-order MAML
    assert w.grad is not None
    with pytest.raises(GradientError, match=r"a second time"):
        f.sum().backward()


def test_what_leads_to_no_target_may_be_spent():
    a, b = leaf(1.0), leaf(2.0)
    loss = a.exp().sum() + (b + 1).sum()
    loss.backward()
    assert grad(loss, [b])[0].tolist() == [1]
    with pytest.raises(GradientError, match=r"a second time"):
        grad(loss, [a], allow_unused=True)


def test_numbers_are_read_again():
    w = leaf(1.0, 2.0, 3.0)
    loss = w[1] + w[1:].sum()
    loss.backward()
    loss.backward()
    assert w.grad.tolist() == [0, 4, 2]


def test_outputs_of_one_application_share_what_it_saved():
    w = leaf(3.0, 1.0)
    low, high = weft.aminmax(w)
    low.backward()
    with pytest.raises(GradientError, match=r"a second time"):
        high.backward()
    first, second = leaf(1.0, 2.0).unbind(0)
    first.backward()
    second.backward()


def test_hooks_are_called_once_where_old_and_new_graphs_meet():
    w, calls = leaf(1.0, 2.0), []
    h = w + 1
    old = h.sum()
    old.backward()
    h.register_hook(lambda g: calls.append(g.tolist()))
    (old + (h * h).sum()).backward()
    assert calls == [[5, 7]]


def test_a_pass_within_a_pass_may_take_the_same_nodes():
    w = leaf(1.0, 2.0)
    trunk = w + 1
    side = trunk.sum()

    class Nested(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            side.backward()
            return g * 2

    Nested.apply(trunk).sum().backward()
    assert w.grad.tolist() == [3, 3]


def test_grad_fn_leads_through_what_is_freed():
    w = leaf(1.0)
    h = (w * 2).exp()
    loss = h.sum()
    before = loss.grad_fn
    loss.backward()
    loss.tolist()
    assert loss.grad_fn is before
    names = [loss.grad_fn.name()]
    node = loss.grad_fn
    while node.next_functions:
        node = node.next_functions[0][0]
        names.append(node.name())
    assert names == ["SumBackward0", "ExpBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]
    assert loss.grad_fn.next_functions[0][0] is h.grad_fn


def test_a_leaf_that_was_written_is_still_a_target():
    w = leaf(1.0, 2.0)
    loss = (w * 3).sum()
    with weft.no_grad():
        w.add_(1)
    assert grad(loss, [w])[0].tolist() == [3, 3]


def test_a_write_off_the_tape_leaves_the_place_in_the_graph():
    w = leaf(1.0, 2.0)
    h = w + 1
    h.sum().backward()
    with weft.no_grad():
        h.mul_(3)
    assert h.grad_fn.name() == "AddBackward0"
    h.sum().backward()
    assert (h.tolist(), w.grad.tolist()) == ([6, 9], [2, 2])


def test_kept_gradients_add_up_and_follow_writes():
    w = leaf(1.0, 2.0)
    h = w + 1
    h.retain_grad()
    loss = h.sum()
    loss.backward()
    loss.backward()
    assert h.grad.tolist() == [2, 2]
    h = w + 1
    h.retain_grad()
    h.mul_(3)
    h.sum().backward()
    assert h.grad.tolist() == [1, 1]


def test_underscore_grad_is_the_gradient():
    w = leaf(1.0, 2.0)
    w._grad = weft.ones(2, dtype=weft.float64)
    assert w.grad.tolist() == [1, 1]
    w.grad = None
    assert w._grad is None
