"""Backward passes: gradients against closed forms, hooks, errors, and what stays valid."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import weft
from weft.autograd import grad


def leaf(*numbers):
    return weft.tensor(numbers, dtype=weft.float64, requires_grad=True)


# --- derivatives ---


def test_backward_collects_in_leaves():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x * y + x.sin()).sum().backward()
    np.testing.assert_allclose(x.grad, [3 + np.cos(1), 4 + np.cos(2)])
    assert y.grad.tolist() == [1, 2]
    assert not x.grad.requires_grad


CLOSED = [
    ("cube", lambda x: x**3, [lambda x: 3 * x**2, lambda x: 6 * x, lambda x: 6 + 0 * x]),
    ("exp", lambda x: (2 * x).exp(), [lambda x, k=k: 2**k * np.exp(2 * x) for k in (1, 2, 3)]),
    ("sin", lambda x: x.sin(), [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)]),
    ("quotient", lambda x: 1 / x, [lambda x: -(x**-2.0), lambda x: 2 * x**-3.0, lambda x: -6 * x**-4.0]),
    ("twice", lambda x: x * x.log(), [lambda x: np.log(x) + 1, lambda x: 1 / x, lambda x: -(x**-2.0)]),
]


@pytest.mark.parametrize(("function", "derivatives"), [row[1:] for row in CLOSED], ids=[row[0] for row in CLOSED])
def test_derivatives_up_to_third_order(function, derivatives):
    x = leaf(0.5, 2.0)
    y = function(x)
    for expected in derivatives:
        (y,) = grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(y.detach(), expected(x.detach().numpy()), rtol=1e-12)


def test_mixed_second_derivatives():
    x, y = leaf(2.0), leaf(3.0)
    (gx,) = grad((x**2 * y**3).sum(), x, create_graph=True)
    (gxy,) = grad(gx.sum(), y)
    assert gxy.tolist() == [2 * 2 * 3 * 9]


def test_backward_with_create_graph_leaves_differentiable_gradients():
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = grad(x.grad.sum(), x)
    assert second.tolist() == [12]


def test_a_diamond_is_passed_once_per_application():
    x = leaf(1.5)
    y = x * 2
    calls = []
    y.register_hook(lambda g: calls.append(g.tolist()))
    (y * y + y.exp()).sum().backward()
    np.testing.assert_allclose(x.grad, [2 * (2 * 3 + np.exp(3))])
    assert len(calls) == 1


def test_a_deep_graph_does_not_recurse():
    x = leaf(1.0)
    y = x
    for _ in range(1200):
        y = y + x
    y.sum().backward()
    assert x.grad.tolist() == [1201]


def test_complex_gradients_are_conjugate_wirtinger():
    z = weft.tensor([1 + 2j], dtype=weft.complex128, requires_grad=True)
    (z * z.conj()).real.sum().backward()
    assert z.grad.tolist() == [2 + 4j]


def test_one_of_several_outputs_may_be_dropped():
    x = leaf(3.0, 1.0, 2.0)
    x.sort().values[0].backward()
    assert x.grad.tolist() == [0, 1, 0]
    values, indices = x.max(0)
    del indices
    values.backward()
    assert x.grad.tolist() == [1, 1, 0]
    first, _ = x.chunk(2)
    first.sum().backward()
    assert x.grad.tolist() == [2, 2, 0]


def test_all_of_several_outputs_contribute():
    x = weft.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=weft.float64, requires_grad=True)
    low, high = x.aminmax(dim=0)
    (low.sum() * 2 + high.sum()).backward()
    assert x.grad.tolist() == [[1, 2], [2, 1]]
    first, second = x.unbind(0)
    (gx,) = grad((first * second).sum(), x)
    assert gx.tolist() == [[0, 3], [2, 0]]


# --- what is asked for ---


def test_gradients_add_up_in_the_same_tensor():
    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    kept = x.grad
    (x * 3).sum().backward()
    assert x.grad is kept
    assert kept.tolist() == [5, 5]


def test_setting_a_gradient():
    x = leaf(1.0, 2.0)
    x.grad = weft.ones(2, dtype=weft.float64)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3, 3]
    x.grad = None
    assert x.grad is None
    with pytest.raises(RuntimeError, match=r"^attempting to assign a gradient of size '\[3\]' to a "):
        x.grad = weft.ones(3, dtype=weft.float64)
    with pytest.raises(RuntimeError, match=r"^attempting to assign a gradient with dtype 'float' to"):
        x.grad = weft.ones(2)
    with pytest.raises(TypeError, match=r"^assigned grad expected to be a Tensor or None but got grad of type list$"):
        x.grad = [1, 2]
    with pytest.raises(RuntimeError, match=r"^can't assign Variable as its own grad$"):
        x.grad = x
    x.grad = weft.ones(2, dtype=weft.float64)
    del x.grad
    assert x.grad is None


def test_cotangents_of_results_that_are_no_scalars():
    x = leaf(1.0, 2.0)
    (x * x).backward(weft.tensor([1.0, 10.0], dtype=weft.float64))
    assert x.grad.tolist() == [2, 40]
    weft.autograd.backward([x * 1, x * 2], [weft.ones(2, dtype=weft.float64)] * 2)
    assert x.grad.tolist() == [5, 43]


def test_backward_into_chosen_inputs():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    (z * x).sum().backward(inputs=[y])
    assert x.grad is None
    assert y.grad.tolist() == [4]
    with pytest.raises(RuntimeError, match=r"^`inputs` argument to `backward\(\)` cannot be empty.$"):
        (x * y).sum().backward(inputs=[])
    with pytest.raises(RuntimeError, match=r"^can't retain_grad on Tensor that has requires_grad=False$"):
        (x * y).sum().backward(inputs=[weft.ones(1)])


def test_grad_touches_no_leaf():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    found = grad((z * z).sum(), [z, x])
    assert [g.tolist() for g in found] == [[12], [36]]
    assert x.grad is None
    assert y.grad is None


def test_grad_of_an_input_is_of_the_input_itself():
    x = leaf(2.0)
    (found,) = grad(x, x, weft.tensor([5.0], dtype=weft.float64))
    assert found.tolist() == [5]


def test_unused_inputs():
    x, y = leaf(2.0), leaf(3.0)
    with pytest.raises(RuntimeError, match=r"^The differentiated Tensor at index 1 appears to not have been used in"):
        grad((x * 2).sum(), [x, y])
    assert grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    assert grad((x * 2).sum(), [x, y], materialize_grads=True)[1].tolist() == [0]


WRONG = [
    ("not a scalar", lambda x: (x * 2).backward(), r"^grad can be implicitly created only for scalar outputs"),
    (
        "no tape",
        lambda x: x.detach().sum().backward(),
        r"^element 0 of tensors does not require grad and does not have",
    ),
    ("input off the tape", lambda x: grad(x.sum(), weft.ones(2)), r"^One of the differentiated Tensors does not requi"),
    (
        "cotangent's shape",
        lambda x: (x * 2).backward(weft.ones(3)),
        r"^Mismatch in shape: grad_output\[0\] has a shape",
    ),
    (
        "cotangent's type",
        lambda x: (x * 2).backward(weft.ones(2) * 1j),
        r"^For complex Tensors, both grad_output and output are required to have the same dtype\. Mismatch in dtype",
    ),
    ("no inputs", lambda x: grad(x.sum(), []), r"^`inputs` argument to `grad\(\)` cannot be empty\.$"),
    ("complex result", lambda x: (x[0] * 1j).backward(), r"^grad can be implicitly created only for real scalar outp"),
    (
        "second result off the tape",
        lambda x: weft.autograd.backward([x.sum(), weft.ones(2)], [None, weft.ones(2)]),
        r"^element 1 of tensors does not require grad and does not have a grad_fn",
    ),
    (
        "second cotangent's shape",
        lambda x: grad([x.sum(), x], x, [None, weft.ones(3)]),
        r"^Mismatch in shape: grad_output\[1\] has a shape of torch.Size\(\[3\]\) and output\[1\] has",
    ),
    ("too few cotangents", lambda x: grad([x, x], x, [weft.ones(2)]), r"^got 2 tensors and 1 gradients$"),
    ("a single None", lambda x: grad([x.sum(), x.sum()], x, [None]), r"^got 2 tensors and 1 gradients$"),
]


@pytest.mark.parametrize(("ask", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_be_asked_for(ask, text):
    with pytest.raises(RuntimeError, match=text):
        ask(leaf(1.0, 2.0))


def test_further_cotangents_are_ignored():
    x = leaf(1.0, 2.0)
    assert grad(x * 2, x, [weft.ones(2), None])[0].tolist() == [2, 2]
    weft.autograd.backward(x * 3, grad_tensors=[weft.ones(2), weft.ones(7)])
    assert x.grad.tolist() == [3, 3]


def test_zeros_for_unused_inputs_allow_them():
    x = leaf(1.0)
    with pytest.raises(ValueError, match=r"^Expected allow_unused to be True or not passed when materialize_grads=Tr"):
        grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_a_cotangent_takes_the_type_of_its_result():
    x = leaf(1.0, 2.0)
    (x * 2).backward(weft.tensor([1.0, 3.0]))
    assert x.grad.dtype is weft.float64
    assert x.grad.tolist() == [2, 6]


def test_a_second_backward_needs_retain_graph():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    with pytest.raises(
        RuntimeError, match=r"^Trying to backward through the graph a second time .* Specify retain_graph"
    ):
        y.backward()


def test_a_freed_interior_is_noticed_by_another_result():
    x = leaf(1.0)
    y = x.exp()
    (y * 2).sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        (y * 3).sum().backward()


# --- what stays valid ---


def test_reading_between_forward_and_backward():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.tolist()
    z = (y * x).sum()
    z.item()
    z.backward()
    np.testing.assert_allclose(x.grad, np.exp([1, 2]) * [2, 3])


def test_in_place_writes_never_invalidate_a_backward_pass():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = (y * y).sum()
    y.mul_(0)
    with weft.no_grad():
        x.add_(100)
    z.backward()
    assert x.grad.tolist() == [18, 36]
    assert y.tolist() == [0, 0]
    assert x.tolist() == [101, 102]


def test_writes_through_views_never_invalidate_a_backward_pass():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = (y**2).sum()
    y[0] = 50.0
    (z + y.sum()).backward()
    assert x.grad.tolist() == [2, 5]


def test_the_graph_is_freed_with_the_result():
    x = leaf(1.0)
    y = x * 2
    seen = weakref.ref(y)
    z = y.exp()
    del y
    assert seen() is None
    assert z.requires_grad
    gc.collect()
    z.sum().backward()
    np.testing.assert_allclose(x.grad, [2 * np.exp(2)])


def test_detach_cuts_and_shares():
    x = leaf(1.0, 2.0)
    y = x * 2
    cut = y.detach()
    assert not cut.requires_grad
    (y + cut * 10).sum().backward()
    assert x.grad.tolist() == [2, 2]
    cut.zero_()
    assert y.tolist() == [0, 0]


def test_detach_in_place_makes_a_leaf():
    y = leaf(1.0) * 2
    assert y.grad_fn.name() == "MulBackward0"
    y.detach_()
    assert y.is_leaf
    assert y.grad_fn is None
    with pytest.raises(RuntimeError, match=r"^Can't detach views in-place"):
        (leaf(1.0) * 2)[0].detach_()


def test_detach_in_place_leaves_the_gradient():
    x = leaf(1.0, 2.0)
    (x * 3).sum().backward()
    x.detach_()
    assert not x.requires_grad
    assert x.grad.tolist() == [3, 3]


def test_requires_grad_is_for_floating_leaves():
    with pytest.raises(RuntimeError, match=r"^only Tensors of floating point dtype can require gradients"):
        weft.tensor([1]).requires_grad_()
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match=r"^you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    x = weft.ones(1)
    y = x * 2
    x.requires_grad_()
    assert not y.requires_grad
    assert (x * 2).requires_grad
    x.requires_grad_(False)
    assert not (x * 2).requires_grad


def test_the_tape_can_be_walked():
    y = (leaf(1.0) * 2).exp()
    assert y.grad_fn.name() == "ExpBackward0"
    ((inner, at),) = y.grad_fn.next_functions
    assert (inner.name(), at) == ("MulBackward0", 0)
    assert [type(f).__name__ for f, _ in inner.next_functions] == ["AccumulateGrad", "NoneType"]
    assert y.grad_fn is y.grad_fn
    assert repr(y.grad_fn).startswith("<ExpBackward0 object at ")
