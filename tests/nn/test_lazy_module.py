"""The mixin of lazy modules."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
from weft import nn
from weft.nn.modules.lazy import LazyModuleMixin


class Scale(nn.Module):
    def forward(self, x, *, by=1):
        return x * self.scale * by


class LazyScale(LazyModuleMixin, Scale):
    cls_to_become = Scale

    def __init__(self):
        super().__init__()
        self.scale = nn.UninitializedParameter()

    def initialize_parameters(self, x, *, by=1):
        if self.has_uninitialized_params():
            self.scale.materialize(x.shape[-1:])
            with weft.no_grad():
                self.scale.fill_(by)


def test_the_first_call_initializes_with_its_arguments():
    scale = LazyScale()
    assert scale.has_uninitialized_params()
    assert scale(weft.ones(2, 3), by=2).tolist() == [[4] * 3] * 2
    assert type(scale) is Scale
    assert not scale._forward_pre_hooks
    assert not hasattr(scale, "_initialize_hook")


def test_what_is_not_written_or_not_done_is_an_error():
    class Bare(LazyModuleMixin, Scale):
        def __init__(self):
            super().__init__()
            self.scale = nn.UninitializedParameter()

    class Idle(Bare):
        def initialize_parameters(self, x):
            pass

    with pytest.raises(NotImplementedError, match=r"^initialize_parameters is not implemented for Bare$"):
        Bare()(1)
    with pytest.raises(RuntimeError, match=r"^module Idle has not been fully initialized$"):
        Idle()(1)


def test_state_dicts_give_shapes():
    source, target = LazyScale(), LazyScale()
    source(weft.ones(3), by=2)
    target.load_state_dict(source.state_dict())
    assert target.scale.tolist() == [2, 2, 2]
    assert type(target) is LazyScale
    assert target(weft.ones(3), by=7).tolist() == [14, 14, 14]
    assert type(target) is Scale


def test_uninitialized_state_fits_uninitialized_modules_only():
    state = LazyScale().state_dict()
    assert repr(state["scale"]) == "<UninitializedParameter>"
    target = LazyScale()
    target.load_state_dict(state)
    assert target.has_uninitialized_params()
    target(weft.ones(3))
    with pytest.raises(RuntimeError, match=r"^Can't access the shape of an uninitialized parameter or buffer\. "):
        target.load_state_dict(state)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_initialize_by_themselves(copied):
    first = LazyScale()
    second = copied(first)
    assert second(weft.ones(2)).tolist() == [1, 1]
    assert type(second) is Scale
    assert first.has_uninitialized_params()


def test_conversions_come_before_the_first_call():
    scale = LazyScale().double()
    assert scale.scale.dtype is weft.float64
    scale(weft.ones(2, dtype=weft.float64))
    assert scale.scale.dtype is weft.float64
