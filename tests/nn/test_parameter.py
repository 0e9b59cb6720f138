"""Classes that libraries derive from `Parameter`."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import Tensor, nn


def test_a_class_may_have_arguments_of_its_own():
    class Scaled(nn.Parameter):
        def __new__(cls, data, scale, requires_grad=True):
            parameter = super().__new__(cls, data, requires_grad)
            parameter.scale = scale
            return parameter

    parameter = Scaled(weft.ones(2), scale=3, requires_grad=False)
    assert (parameter.tolist(), parameter.scale, parameter.requires_grad) == ([1, 1], 3, False)
    assert type(copy.deepcopy(parameter)) is Scaled


def test_a_class_may_make_its_objects_itself():
    class OnSphere(nn.Parameter):
        def __new__(cls, data=None, manifold=None, requires_grad=True):
            parameter = Tensor._make_subclass(cls, data / data.norm(), requires_grad)
            parameter.manifold = manifold
            return parameter

    layer = nn.Module()
    layer.weight = OnSphere(weft.tensor([3.0, 4.0]), manifold="sphere")
    (weight,) = layer.parameters()
    assert (weight.tolist(), weight.manifold, weight.requires_grad) == (pytest.approx([0.6, 0.8]), "sphere", True)


def test_a_class_that_holds_its_tensor_is_asked_for_nothing_while_it_is_made():
    class Holding(nn.Parameter):
        def __new__(cls, data):
            return super().__new__(cls)

        def __init__(self, data):
            self.tensor = nn.Parameter(data)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*[x.tensor if isinstance(x, Holding) else x for x in args], **(kwargs or {}))

    assert (Holding(weft.ones(2)) + 1).tolist() == [2, 2]


def test_a_buffer_may_have_arguments_of_its_own():
    class Named(nn.Buffer):
        def __new__(cls, data, label):
            buffer = super().__new__(cls, data, persistent=False)
            buffer.label = label
            return buffer

    layer = nn.Module()
    layer.table = Named(weft.ones(2), "table")
    assert ([buffer.label for buffer in layer.buffers()], list(layer.state_dict())) == (["table"], [])
