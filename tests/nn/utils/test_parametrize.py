"""Parametrizations: what registering, reading, assigning, copying, saving and removing do."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
from weft import nn
from weft.nn.utils import parametrize as P


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, a):
        return a.triu()


class Double(nn.Module):
    """Counts how often it computes."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


class Polar(nn.Module):
    def forward(self, length, sign):
        return length * sign

    def right_inverse(self, x):
        return x.abs(), x.sign()


def square(values=((0.0, 1.0), (2.0, 3.0))):
    layer = nn.Linear(2, 2)
    with weft.no_grad():
        layer.weight.copy_(weft.tensor(values))
    return layer


def test_a_parameter_is_computed_from_the_original():
    layer = square()
    weight = layer.weight
    assert P.register_parametrization(layer, "weight", Symmetric()) is layer
    assert layer.weight.tolist() == [[0, 1], [1, 3]]
    assert layer.parametrizations.weight.original is weight
    assert weight.tolist() == [[0, 1], [0, 3]]
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    layer.weight.sum().backward()
    assert weight.grad.tolist() == [[1, 2], [0, 1]]


def test_the_class_says_that_something_is_parametrized():
    layer = P.register_parametrization(square(), "weight", Symmetric())
    assert repr(layer) == (
        "ParametrizedLinear(\n  in_features=2, out_features=2, bias=True\n  (parametrizations): ModuleDict(\n"
        "    (weight): ParametrizationList(\n      (0): Symmetric()\n    )\n  )\n)"
    )
    assert isinstance(layer, nn.Linear)
    assert P.type_before_parametrizations(layer) is nn.Linear
    assert [P.is_parametrized(layer, name) for name in (None, "weight", "bias")] == [True, True, False]
    assert not P.is_parametrized(nn.Linear(1, 1))


def test_an_assignment_goes_through_the_right_inverse():
    layer = P.register_parametrization(square(), "weight", Symmetric())
    layer.weight = weft.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert layer.weight.tolist() == [[5, 6], [6, 8]]
    P.register_parametrization(layer, "weight", Double())
    with pytest.raises(RuntimeError, match=r"^parametrization Double does not implement right_inverse\.$"):
        layer.weight = weft.ones(2, 2)
    with pytest.raises(KeyError, match="attribute 'weight' already exists"):
        layer.weight = nn.Parameter(weft.ones(2, 2))


def test_several_parametrizations_are_applied_in_order():
    layer = square()
    for parametrization in (Symmetric(), Double()):
        P.register_parametrization(layer, "weight", parametrization)
    assert layer.weight.tolist() == [[0, 2], [2, 6]]
    other = square()
    P.transfer_parametrizations_and_params(layer, other)
    assert other.weight.tolist() == layer.weight.tolist()
    assert other.parametrizations.weight.original is layer.parametrizations.weight.original


def test_a_right_inverse_may_give_several_originals():
    layer = P.register_parametrization(square(((-3.0, 1.0), (2.0, -2.0))), "weight", Polar())
    names = ["parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(layer.state_dict()) == ["bias", *names]
    assert layer.weight.tolist() == [[-3, 1], [2, -2]]
    layer.weight = weft.full((2, 2), -4.0)
    assert layer.parametrizations.weight.original0.tolist() == [[4, 4], [4, 4]]
    with pytest.raises(ValueError, match=r"^Cannot leave unparametrized \(`leave_parametrized=False`\) a tensor"):
        P.remove_parametrizations(layer, "weight", leave_parametrized=False)
    P.remove_parametrizations(layer, "weight")
    assert layer.weight.tolist() == [[-4, -4], [-4, -4]]
    assert type(layer.weight) is nn.Parameter


@pytest.mark.parametrize(("leave", "left"), [(True, [[0, 1], [1, 3]]), (False, [[0, 1], [0, 3]])])
def test_removal_leaves_the_value_or_the_original(leave, left):
    layer = square()
    weight = layer.weight
    P.register_parametrization(layer, "weight", Symmetric())
    assert P.remove_parametrizations(layer, "weight", leave_parametrized=leave) is layer
    assert layer.weight is weight
    assert layer.weight.tolist() == left
    assert type(layer) is nn.Linear
    assert list(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match=r"^Module Linear\(.*\) does not have a parametrization on weight$"):
        P.remove_parametrizations(layer, "weight")


def test_copies_are_independent_and_files_hold_state_dicts():
    layer = P.register_parametrization(square(), "weight", Symmetric())
    twin = copy.deepcopy(layer)
    assert P.remove_parametrizations(twin, "weight").weight.tolist() == [[0, 1], [1, 3]]
    assert layer.weight.tolist() == [[0, 1], [1, 3]]
    with pytest.raises(
        RuntimeError, match=r"^Serialization of parametrized modules is only supported through state_dic"
    ):
        pickle.dumps(layer)
    other = P.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    other.load_state_dict(layer.state_dict())
    assert other.weight.tolist() == layer.weight.tolist()


def test_reads_are_cached_in_a_block():
    double = Double()
    layer = P.register_parametrization(square(), "weight", double)
    double.calls = 0
    with P.cached():
        first = layer.weight
        with P.cached():
            assert layer.weight is first
        assert layer.weight is first
    assert double.calls == 1
    assert layer.weight is not layer.weight
    assert double.calls == 3


def test_buffers_are_parametrized_too_and_modes_are_taken_over():
    norm, double = nn.BatchNorm1d(1).eval(), Double()
    P.register_parametrization(norm, "running_var", double)
    assert norm.running_var.tolist() == [2]
    assert "parametrizations.running_var.original" in norm.state_dict()
    assert not double.training
    assert norm.double().running_var.dtype is weft.float64


class Half(nn.Module):
    def forward(self, x):
        return x.to(weft.float16)


class Row(nn.Module):
    def forward(self, x):
        return x[:1]


class Three(nn.Module):
    def forward(self, x):
        return 3


class Backwards(nn.Module):
    """Its right inverse gives whatever it is told to."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def forward(self, *x):
        return x[0]

    def right_inverse(self, x):
        return self.found(x)


FIRST = [
    (Half(), "^Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled."),
    (Row(), "^Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled."),
    (Three(), r"^A parametrization must return a tensor\. Got int\.$"),
    (Backwards(lambda x: 3), r"^'right_inverse' must return a Tensor or a Sequence of tensors .*\. Got int$"),
    (Backwards(lambda x: (x, 3)), r"Got element 1 of the sequence with type int\.$"),
    (Backwards(lambda x: x.double()), "^When `right_inverse` outputs one tensor, it may not change the dtype."),
]
SECOND = [
    (Half(), "^Registering a parametrization may not change the dtype of the tensor, unless the `unsafe` flag is ena"),
    (Row(), r"parametrization\(module.weight\).shape: torch.Size\(\[1, 2\]\)$"),
    (Backwards(lambda x: 3), r"^parametrization\.right_inverse must return a tensor\. Got: int$"),
    (
        Backwards(lambda x: x.double()),
        "^The tensor returned by parametrization.right_inverse must have the same dtype as module.weight, unless the",
    ),
]


@pytest.mark.parametrize(("bad", "text"), FIRST)
def test_a_first_parametrization_that_does_not_fit_changes_nothing(bad, text):
    layer = square()
    with pytest.raises(ValueError, match=text):
        P.register_parametrization(layer, "weight", bad)
    assert type(layer) is nn.Linear
    assert layer.weight.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("bad", "text"), SECOND)
def test_one_more_that_does_not_fit_changes_nothing(bad, text):
    layer = P.register_parametrization(square(), "weight", nn.Identity())
    with pytest.raises(ValueError, match=text):
        P.register_parametrization(layer, "weight", bad)
    assert len(layer.parametrizations.weight) == 1


def test_an_unsafe_one_may_change_the_shape():
    layer = P.register_parametrization(square(), "weight", Row(), unsafe=True)
    assert layer.weight.tolist() == [[0, 1]]
    assert layer.parametrizations.weight.unsafe


def test_a_name_must_be_there():
    with pytest.raises(
        ValueError, match=r"does not have a parameter, a buffer, or a parametrized element with name 'x'$"
    ):
        P.register_parametrization(square(), "x", Symmetric())
    with pytest.raises(ValueError, match=r"^ParametrizationList requires one or more modules\.$"):
        P.ParametrizationList([], weft.ones(1))
