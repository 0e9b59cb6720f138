"""In-place forms of view operators change what a tensor looks at, and leave its storage shared."""

from __future__ import annotations

import pytest

import weft


def numbers():
    return weft.arange(6.0).reshape(2, 3).clone()


SHAPES = [
    (lambda x: x.t_(), [3, 2]),
    (lambda x: x.transpose_(0, 1), [3, 2]),
    (lambda x: x.swapaxes_(0, 1), [3, 2]),
    (lambda x: x.unsqueeze_(0), [1, 2, 3]),
    (lambda x: x.unsqueeze_(0).squeeze_(), [2, 3]),
]


@pytest.mark.parametrize(("change", "shape"), SHAPES)
def test_the_handle_gets_another_shape(change, shape):
    x = numbers()
    assert change(x) is x
    assert list(x.shape) == shape
    assert sorted(x.flatten().tolist()) == [0, 1, 2, 3, 4, 5]


def test_views_before_and_after_share_the_storage():
    x = numbers()
    row = x[0]
    x.t_()
    x[0, 1] = 50
    row[2] = -1
    assert x.tolist() == [[0, 50], [1, 4], [-1, 5]]
    assert x.t()[0].tolist() == row.tolist() == [0, 1, -1]


def test_a_view_looks_elsewhere_and_its_base_does_not():
    x = numbers()
    part = x[:, 1:]
    part.t_()[0] = 9
    assert part.tolist() == [[9, 9], [2, 5]]
    assert x.tolist() == [[0, 9, 2], [3, 9, 5]]


def test_gradients_flow_through():
    w = weft.ones(2, 3, requires_grad=True)
    x = w * 2
    x.t_().mul_(3)
    (x.unsqueeze_(0) ** 2).sum().backward()
    assert w.grad.tolist() == [[72.0] * 3] * 2


def test_leaves_that_require_gradients_refuse():
    p = weft.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"^a leaf Variable that requires grad is being used in an in-place"):
        p.t_()
    with weft.no_grad():
        p.t_()
    assert p.requires_grad
    assert list(p.shape) == [3, 2]
