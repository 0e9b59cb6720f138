"""Clipping of gradients, and parameters as one vector."""

from __future__ import annotations

import math

import pytest

import weft
from weft import nn
from weft.nn import utils


def parameters(*grads):
    made = [nn.Parameter(weft.ones(len(grad))) for grad in grads]
    for parameter, grad in zip(made, grads, strict=True):
        parameter.grad = weft.tensor(grad)
    return [*made, nn.Parameter(weft.ones(1))]


def test_the_norm_of_all_gradients_is_clipped():
    listed = parameters([3.0, 0.0], [4.0])
    assert utils.clip_grad_norm_(listed, 1.0).item() == pytest.approx(5)
    assert listed[0].grad.tolist() == pytest.approx([0.6, 0])
    assert listed[1].grad.tolist() == pytest.approx([0.8])
    assert utils.clip_grad_norm_(iter(listed), 10.0).item() == pytest.approx(1)
    assert listed[1].grad.tolist() == pytest.approx([0.8])
    assert utils.clip_grad_norm_(listed, 0.3, norm_type=math.inf).item() == pytest.approx(0.8)
    assert listed[1].grad.tolist() == pytest.approx([0.3], rel=1e-5)
    assert utils.clip_grad_norm_([], 1.0).item() == 0


def test_a_norm_that_is_not_finite_can_be_refused():
    listed = parameters([math.inf])
    with pytest.raises(
        RuntimeError, match=r"^The total norm of order 2.0 for gradients from `parameters` is non-finite"
    ):
        utils.clip_grad_norm_(listed, 1.0, error_if_nonfinite=True)


def test_gradients_are_cut_off():
    listed = parameters([3.0, -3.0, 0.5])
    utils.clip_grad_value_(listed, 1.0)
    assert listed[0].grad.tolist() == [1, -1, 0.5]


def test_parameters_travel_as_one_vector():
    layer = nn.Linear(2, 1)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (3,)
    utils.vector_to_parameters(weft.tensor([1.0, 2.0, 3.0]), layer.parameters())
    assert (layer.weight.tolist(), layer.bias.tolist()) == ([[1, 2]], [3])
    with pytest.raises(TypeError, match=r"^expected torch.Tensor, but got: list$"):
        utils.vector_to_parameters([1.0], layer.parameters())
