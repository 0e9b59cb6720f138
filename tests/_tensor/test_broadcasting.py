"""Shapes that meet: what they give, and what PyTorch says where they do not fit."""

from __future__ import annotations

import pytest

import weft

FITS = [
    ((5, 7, 3), (5, 7, 3), (5, 7, 3)),
    ((5, 3, 4, 1), (3, 1, 1), (5, 3, 4, 1)),
    ((5, 1, 4, 1), (3, 1, 1), (5, 3, 4, 1)),
    ((1,), (3, 1, 7), (3, 1, 7)),
    ((0,), (1,), (0,)),
    ((), (2, 3), (2, 3)),
    ((), (), ()),
    ((4, 1), (4,), (4, 4)),
]
DOES_NOT_FIT = [
    ((0,), (2, 2), "The size of tensor a (0) must match the size of tensor b (2) at non-singleton dimension 1"),
    (
        (5, 2, 4, 1),
        (3, 1, 1),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
    ),
]


@pytest.mark.parametrize(("x", "y", "result"), FITS)
def test_shapes_that_fit(x, y, result):
    assert (weft.ones(x) + weft.ones(y)).shape == result
    assert (weft.ones(y) * weft.ones(x)).shape == result
    assert weft.broadcast_shapes(x, y) == result
    assert all(t.shape == result for t in weft.broadcast_tensors(weft.ones(x), weft.ones(y)))


@pytest.mark.parametrize(("x", "y", "text"), DOES_NOT_FIT)
def test_shapes_that_do_not_fit(x, y, text):
    for combine in (weft.add, weft.mul, weft.maximum):
        with pytest.raises(RuntimeError) as error:
            combine(weft.ones(x), weft.ones(y))
        assert str(error.value) == text


def test_elements_are_repeated():
    x, y = weft.tensor([[1], [2]]), weft.tensor([10, 20, 30])
    assert (x + y).tolist() == [[11, 21, 31], [12, 22, 32]]


def test_gradients_add_up_over_repeated_elements():
    x = weft.ones(2, 1, requires_grad=True)
    y = weft.ones(3, requires_grad=True)
    (x * y * weft.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[6], [6]]
    assert y.grad.tolist() == [2, 4, 6]


def test_the_receiver_of_a_write_keeps_its_shape():
    assert weft.ones(5, 3, 4, 1).add_(weft.ones(3, 1, 1)).shape == (5, 3, 4, 1)
    x = weft.ones(1, 3, 1)
    with pytest.raises(RuntimeError) as error:
        x.add_(weft.ones(3, 1, 7))
    assert str(error.value) == "output with shape [1, 3, 1] doesn't match the broadcast shape [3, 3, 7]"
    assert x.tolist() == [[[1], [1], [1]]]


def test_expanding_to_a_smaller_size_is_refused():
    with pytest.raises(
        RuntimeError, match=r"^The expanded size of the tensor \(1\) must match the existing size \(7\) at"
    ):
        weft.ones(3, 1, 7).expand(1, 3, 1)
