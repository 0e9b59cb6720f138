"""Tensors whose arrays are gone."""

import pytest

import weft
from weft import nn
from weft._lazy.reading import array_of
from weft.errors import LostError


@pytest.fixture(params=["interpreted", "compiled"])
def layer(request, monkeypatch):
    """A layer of whose parameters XLA has no elements any more, and its state before."""
    monkeypatch.setattr("weft._base.config.TIER", request.param)
    layer = nn.Linear(3, 2)
    state = {name: weft.tensor(value.tolist()) for name, value in layer.state_dict().items()}
    for parameter in layer.parameters():
        array_of(parameter._value).delete()
    return layer, state


def test_a_read_says_what_to_do(layer):
    message = r"the elements of a tensor of type float32\[2, 3\] are gone.*by copy_\(\) or load_state_dict\(\)"
    for read in (lambda x: x.tolist(), lambda x: (x * 2).tolist(), lambda x: x.data[0].fill_(1).tolist()):
        with pytest.raises(LostError, match=message):
            read(layer[0].weight)


def test_it_takes_a_state_dict(layer):
    module, state = layer
    module.load_state_dict(state)
    assert {name: value.tolist() for name, value in module.state_dict().items()} == {
        name: value.tolist() for name, value in state.items()
    }


def test_what_writes_all_elements_works(layer):
    module, state = layer
    with weft.no_grad():
        module.weight.copy_(state["weight"])
        module.bias.zero_()
    assert module.weight.tolist() == state["weight"].tolist()
    assert module.bias.tolist() == [0, 0]
