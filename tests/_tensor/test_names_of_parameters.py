"""Names of parameters: what sets their elements keeps them, and their gradients follow."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.library import custom_op
from weft.nn.utils import parameters_to_vector, vector_to_parameters


@pytest.fixture
def layer():
    layer = nn.Linear(3, 2)
    layer.weight.rename_("out", "features")
    layer(weft.ones(4, 3)).sum().backward()
    return layer


def test_a_vector_of_parameters_leaves_names(layer):
    vector_to_parameters(parameters_to_vector(layer.parameters()) * 2, layer.parameters())
    assert layer.weight.names == ("out", "features")
    assert layer.half().weight.grad.names == ("out", "features")
    weft.optim.SGD(layer.parameters(), 0.1).step()
    assert layer.weight.names == ("out", "features")
    assert layer.weight.is_leaf


def test_data_without_names_leaves_those_of_the_tensor(layer):
    data = weft.zeros(2, 3)
    layer.weight.data = data
    assert layer.weight.names == ("out", "features")
    assert data.names == (None, None)
    data.fill_(1)
    assert layer.weight.sum() == 6
    layer.weight.data = weft.zeros(2, 3, names=("a", "b"))
    assert layer.weight.names == ("a", "b")
    layer.weight.data = weft.zeros(6)
    assert layer.weight.names == (None,)


def test_a_gradient_is_renamed_with_its_tensor(layer):
    weight = layer.weight
    weight.rename_("a", "b")
    assert weight.grad.names == ("a", "b")
    layer(weft.ones(4, 3)).sum().backward()
    assert weight.grad.rename(None).tolist() == [[8, 8, 8]] * 2
    weight.rename_(None)
    assert weight.grad.names == (None, None)
    layer(weft.ones(4, 3)).sum().backward()


def test_a_state_dict_with_other_names_is_refused_before_anything_is_loaded(layer):
    other = nn.Linear(3, 2)
    other.weight.rename_("features", "out")
    bias = other.bias.tolist()
    with pytest.raises(RuntimeError) as caught:
        other.load_state_dict(layer.state_dict())
    assert str(caught.value).splitlines()[1] == (
        "\tnames mismatch for weight: copying a param with names ['out', 'features'] from checkpoint, the names in "
        "current model are ['features', 'out']."
    )
    assert other.bias.tolist() == bias
    for model in (nn.Linear(3, 2), layer):
        model.load_state_dict(layer.state_dict())
        assert model.weight.names == ("out", "features")
    layer.load_state_dict(nn.Linear(3, 2).state_dict())
    assert layer.weight.names == ("out", "features")
    other.load_state_dict(layer.state_dict(), assign=True)
    assert other.weight.names == ("out", "features")


def test_a_compiled_function_that_renames_what_is_outside_says_so():
    x = weft.ones(2, 3)

    @weft.compile
    def function():
        x.rename_("a", "b")
        return x * 2

    with pytest.warns(UserWarning, match="function gives other names to the dims of a tensor from outside; it runs"):
        assert function().names == ("a", "b")


def test_errors_name_public_functions():
    norm = nn.BatchNorm1d(3)
    norm.weight.rename_("channel")
    with pytest.raises(RuntimeError, match=r"^batch_norm: Expected 'feature' \(index 1 of "):
        norm(weft.ones(2, 3, names=("row", "feature")))
    with pytest.raises(TypeError, match=r"^names must be a tuple or a list of names, such as \('time',\), not the str"):
        weft.ones(4, names="time")


@custom_op("docs::squared")
def squared(x: weft.Tensor) -> weft.Tensor:
    return x * x


def test_an_operator_of_ones_own_without_a_rule_says_how_to_give_one():
    with pytest.raises(RuntimeError, match=r"^docs::squared\(\) has no rule for names of dims. Please give it one"):
        squared(weft.ones(2, names=("n",)))
