"""Tensors made in inference mode: marked, outside of backward passes, and read-only outside."""

from __future__ import annotations

import copy

import pytest

import weft
from weft.autograd import inference_mode

SAVED = "^Inference tensors cannot be saved for backward"
WRITTEN = "^Inplace update to inference tensor outside InferenceMode is not allowed"


@pytest.fixture
def made():
    with inference_mode():
        return weft.ones(3) * 2


@pytest.fixture
def w():
    return weft.ones(3, requires_grad=True)


def test_what_is_marked(made):
    plain = weft.ones(3)
    assert made.is_inference()
    assert weft.is_inference(made)
    assert not plain.is_inference()
    assert [view.is_inference() for view in (made[:2], made.view(3, 1), made.detach(), made.data)] == [True] * 4
    assert [copied.is_inference() for copied in (made + 1, made.clone(), copy.deepcopy(made))] == [False] * 3
    with inference_mode():
        assert weft.tensor([1.0]).is_inference()
        assert (plain * 2).is_inference()
        assert not plain[:2].is_inference()
        assert not plain.add_(1).is_inference()
        assert not plain[:2].add_(1).is_inference()
        assert made.add_(1).is_inference()
        with inference_mode(False):
            assert not weft.ones(2).is_inference()
    assert plain.tolist() == [3, 3, 2]


def test_a_backward_pass_must_not_read_it(made, w):
    with pytest.raises(RuntimeError, match=SAVED):
        _ = w * made
    with pytest.raises(RuntimeError, match=SAVED):
        weft.nn.Linear(3, 1)(made)
    (w + made).sum().backward()  # which reads nothing
    assert w.grad.tolist() == [1, 1, 1]


def test_a_function_must_not_save_it(made, w):
    class Times(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    with pytest.raises(RuntimeError, match=SAVED):
        Times.apply(w, made)


def test_it_is_written_inside_alone(made):
    for write in (lambda: made.add_(1), lambda: made[:1].zero_(), lambda: made.__setitem__(0, 5.0)):
        with pytest.raises(RuntimeError, match=WRITTEN):
            write()
    with inference_mode():
        made.zero_()
    assert made.tolist() == [0, 0, 0]


def test_it_gets_no_gradient(made):
    with pytest.raises(RuntimeError, match=r"^Setting requires_grad=True on inference tensor outside InferenceMode"):
        made.requires_grad_()
    with inference_mode():
        assert made.requires_grad_().requires_grad
        assert not (made * 2).requires_grad
        with weft.enable_grad():
            assert not (made * 2).requires_grad


def test_inference_mode_off_records_with_gradients(w):
    with weft.no_grad(), inference_mode(False):
        assert (w * 2).requires_grad
