"""Functions whose arguments are padded to powers of two: the results of the caller's sizes, from few programs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.nn import functional as F
from weft.utils.bucketing import bucketed


@bucketed({"x": 1}, mask="real", smallest=4)
def mean(x, real):
    assert real.dtype is weft.bool
    return (x * real).sum(1) / real.sum()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 17])
def test_results_are_those_of_the_callers_size(length):
    x = weft.randn(2, length)
    np.testing.assert_allclose(mean(x), x.mean(1), rtol=1e-5, atol=1e-6)


def test_sizes_are_powers_of_two_from_the_smallest_on():
    sizes = []
    see = bucketed({"x": 0}, smallest=4)(lambda x: sizes.append(len(x)))
    for length in (0, 1, 4, 5, 8, 9, 64, 65):
        see(weft.zeros(length))
    assert sizes == [4, 4, 4, 8, 8, 16, 64, 128]


def test_results_are_cut():
    double = bucketed({"x": 1, "y": -1}, fill={"x": 7, "y": -1}, result_dim=1)(lambda x, y: (x * 2, [y + 1]))
    x = weft.arange(6.0).reshape(2, 3)
    first, (second,) = double(x, y=x)
    assert (first.tolist(), second.tolist()) == ((x * 2).tolist(), (x + 1).tolist())


def test_padding_has_the_given_value():
    fills = bucketed({"x": 0, "y": 0}, fill={"x": 7, "y": -1})(lambda x, y: (x, y))
    x, y = fills(weft.zeros(7, dtype=weft.int32), weft.zeros(7))
    assert (x[-1].item(), x.dtype, y[-1].item()) == (7, weft.int32, -1)


def test_gradients_are_those_of_the_callers_size():
    x, plain = (weft.arange(5.0).requires_grad_(True) for _ in range(2))
    norm = bucketed({"x": 0}, mask="real")(lambda x, real: (x.exp() * real).sum())
    norm(x).backward()
    plain.exp().sum().backward()
    assert x.grad.tolist() == plain.grad.tolist()


@pytest.mark.compiled
def test_one_capture_serves_a_bucket():
    captures = []

    @bucketed({"ids": 1}, mask="real")
    @weft.compile
    def loss(ids, real):
        captures.append(ids.shape)
        logits = F.one_hot(ids, 11).float()
        losses = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none").view(ids.shape)
        return (losses * real).sum() / real.sum() / len(ids)

    expected = F.cross_entropy(F.one_hot(weft.tensor([3]), 11).float(), weft.tensor([3])).item()
    with pytest.warns(UserWarning, match="captures"):  # it appends to a list
        results = [loss(weft.randint(0, 11, (2, length))).item() for length in (1, 8, 9, 16, 5)]
    np.testing.assert_allclose(results, expected, rtol=1e-5)
    assert {shape[1] for shape in captures} == {8, 16}


def test_mistakes_are_told():
    with pytest.raises(
        ValueError, match=r"^bucketed: dims is empty; name the parameters to pad, such as \{'ids': 1\}$"
    ):
        bucketed({})
    with pytest.raises(ValueError, match=r"^bucketed: smallest must be at least 1, got 0$"):
        bucketed({"x": 0}, smallest=0)
    with pytest.raises(TypeError, match=r"^bucketed: .*<lambda> has no parameter 'y'$"):
        bucketed({"y": 0})(lambda x: x)
    pad = bucketed({"x": 0, "y": 0})(lambda x, y: x)
    with pytest.raises(TypeError, match=r"^bucketed: argument 'y' must be a tensor, got int$"):
        pad(weft.zeros(2), 3)
    with pytest.raises(RuntimeError, match=r"^bucketed: the padded dims must have one size, got \{'x': 2, 'y': 3\}$"):
        pad(weft.zeros(2), weft.zeros(3))
