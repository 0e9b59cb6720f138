"""Hooks on tensors and leaves, and gradients kept for interior tensors."""

from __future__ import annotations

from functools import partial

import pytest

import weft
from weft.autograd import grad
from weft.errors import GradientError


@pytest.fixture
def x():
    return weft.tensor([1.0, 2.0], requires_grad=True)


def test_hooks_run_in_order_and_replace(x):
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[1, 1], [10, 10]]
    assert x.grad.tolist() == [20, 20]


def test_hooks_of_a_leaf_see_the_whole_gradient(x):
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 2 + x * 3).sum().backward()
    assert seen == [[5, 5]]


def test_hooks_are_removed_by_their_handles(x):
    seen = []
    handle = x.register_hook(seen.append)
    handle.remove()
    handle.remove()
    with x.register_hook(seen.append):
        pass
    (x * 2).sum().backward()
    assert not seen


def test_hooks_replace_gradients_with_the_tape(x):
    y = x * 2
    y.register_hook(lambda g: g * x)
    (first,) = grad(y.sum(), x, create_graph=True)
    assert first.tolist() == [2, 4]
    assert grad(first.sum(), x)[0].tolist() == [2, 2]


def test_post_accumulate_hooks_see_the_sum(x):
    seen = []

    def take(leaf):
        seen.append((leaf is x, leaf.grad.tolist()))
        leaf.grad = None

    handle = x.register_post_accumulate_grad_hook(take)
    (x * 2 + x).sum().backward()
    (x * 4).sum().backward()
    assert seen == [(True, [3, 3]), (True, [4, 4])]
    assert x.grad is None
    handle.remove()
    (x * 5).sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_hooks_survive_writes_to_the_leaf(x):
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    with weft.no_grad():
        x.mul_(2)
    (x * x).sum().backward()
    assert seen == [[4, 8]]
    assert x.grad.tolist() == [4, 8]


def test_retain_grad_keeps_the_gradient_of_an_interior_tensor(x):
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    (y * y).sum().backward()
    assert y.retains_grad
    assert y.grad.tolist() == [4, 8]
    assert x.grad.tolist() == [8, 16]


def test_a_leaf_retains_its_gradient_anyway(x):
    x.retain_grad()
    assert not x.retains_grad


def test_hooks_and_kept_gradients_meet(x):
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert x.grad.tolist() == [20, 20]
    assert y.grad.tolist() == [10, 10]


def test_hooks_see_one_output_of_several(x):
    seen = []
    low, high = x.unbind(0)
    high.register_hook(lambda g: seen.append(g.item()))
    (low * 2 + high * 3).backward()
    assert seen == [3]
    assert x.grad.tolist() == [2, 3]


def test_a_post_accumulate_hook_returns_nothing(x):
    x.register_post_accumulate_grad_hook(lambda leaf: leaf.grad)
    with pytest.raises(RuntimeError, match=r"^Tensor post accumulate grad hooks should return None\.$"):
        x.sum().backward()


REFUSED = [
    (
        "hook",
        lambda: weft.ones(1).register_hook(print),
        "cannot register a hook on a tensor that doesn't require gradi",
    ),
    ("retain", lambda: weft.ones(1).retain_grad(), r"can't retain_grad on Tensor that has requires_grad=False"),
    (
        "post",
        lambda: (weft.ones(1, requires_grad=True) * 2).register_post_accumulate_grad_hook(print),
        "post accumulate grad hooks cannot be registered on non-leaf tensors",
    ),
]


@pytest.mark.parametrize(("ask", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_hooks_that_would_never_run_are_refused(ask, text):
    with pytest.raises(RuntimeError, match=f"^{text}"):
        ask()


def test_errors_name_hooks_that_have_a_name():
    class Hook:
        def __call__(self, grad):
            return weft.ones(5)

        def method(self, grad):
            return weft.ones(5)

    wider = partial(weft.mul, weft.ones(5, 1))
    for hook, name in ((Hook(), "<unknown>"), (wider, "<unknown>"), (Hook().method, "method")):
        x = weft.ones(2, requires_grad=True)
        x.register_hook(hook)
        with pytest.raises(GradientError, match=f"^hook '{name}' has changed the size of value"):
            (x * 2).sum().backward()


@pytest.mark.parametrize("on_leaf", [True, False])
def test_a_hook_may_not_change_the_shape_or_the_type(on_leaf):
    for wrong, text in (
        (weft.ones(5), r"^hook '<lambda>' has changed the size of value"),
        (weft.ones(2).double(), r"^hook '<lambda>' has changed the type of value"),
    ):
        x = weft.ones(2, requires_grad=True)
        y = x * 2
        (x if on_leaf else y).register_hook(lambda grad, wrong=wrong: wrong)
        with pytest.raises(GradientError, match=text):
            y.sum().backward()
    x = weft.ones(2, requires_grad=True)
    x.register_hook(lambda grad: grad.numpy())
    with pytest.raises(TypeError, match=r"^expected Variable, but hook returned 'numpy\.ndarray'; make a tensor of"):
        (x * 2).sum().backward()


def test_a_tensor_that_collects_no_gradient_warns_where_it_is_read():
    x = weft.ones(2, requires_grad=True)
    y = x * 2
    with pytest.warns(
        UserWarning, match=r"^The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed"
    ):
        assert y.grad is None
    assert y._grad is None
    assert x.grad is None
    assert x.detach().grad is None
    y.retain_grad()
    assert y.grad is None
    y.sum().backward()
    assert y.grad.tolist() == [1, 1]
    z = x * 2
    z.grad = weft.ones(2)
    assert z.grad.tolist() == [1, 1]
