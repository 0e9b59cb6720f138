"""Modules called with other tensors, and stacked."""

from __future__ import annotations

import pytest

import weft
from weft import func, nn


class Net(nn.Module):
    """Two scales that are one parameter, a shift, and a count of calls."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(weft.full((1,), 2.0))
        self.below = nn.Module()
        self.below.b = self.a
        self.shift = nn.Parameter(weft.zeros(1))
        self.register_buffer("calls", weft.zeros(()))

    def forward(self, x, times=1):
        self.calls = self.calls + 1
        return (x * self.a * self.below.b + self.shift) * times


def test_gradients_flow_to_the_stand_ins():
    net, stand_in = Net(), weft.full((1,), 3.0, requires_grad=True)
    found = func.functional_call(net, {"a": stand_in}, weft.ones(1), {"times": 2})
    found.sum().backward()
    assert found.tolist() == [18]
    assert stand_in.grad.tolist() == [12]
    assert net.a.grad is None
    assert net(weft.ones(1)).tolist() == [4]


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


class Invertible(Symmetric):
    def right_inverse(self, x):
        return x.triu()


def test_a_parametrized_tensor_is_set_by_its_inverse():
    x, stand_in = weft.ones(1, 2), weft.tensor([[1.0, 2.0], [2.0, 5.0]])
    layers = [nn.Linear(2, 2, bias=False) for _ in range(2)]
    layers[0] = nn.utils.parametrizations.weight_norm(layers[0])
    nn.utils.parametrize.register_parametrization(layers[1], "weight", Invertible())
    for layer in layers:
        before = layer(x).tolist()
        result = func.functional_call(layer, {"weight": stand_in}, x)
        assert weft.allclose(result, weft.tensor([[3.0, 7.0]]))
        assert layer(x).tolist() == before
    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    before = layer(x).tolist()
    with pytest.raises(RuntimeError, match=r"^parametrization Symmetric does not implement right_inverse\.$"):
        func.functional_call(layer, {"bias": weft.zeros(2), "weight": stand_in}, x)
    assert layer(x).tolist() == before


def test_only_tensors_are_replaced():
    with pytest.raises(TypeError, match=r"^attribute `in_features`: 1 is not an instance of torch\.Tensor$"):
        func.functional_call(nn.Linear(1, 1), {"in_features": weft.ones(1)}, weft.ones(1))


def test_tied_names_share_a_stand_in_unless_told_otherwise():
    net, three, five = Net(), weft.full((1,), 3.0), weft.full((1,), 5.0)
    x = weft.ones(1)
    assert func.functional_call(net, {"a": three}, x, tie_weights=False).tolist() == [6]
    assert func.functional_call(net, {"a": three, "below.b": five}, x, tie_weights=False).tolist() == [15]
    with pytest.raises(
        ValueError, match=r"^functional_call got multiple values for keys \['a', 'below\.b'\], which are"
    ):
        func.functional_call(net, {"a": three, "below.b": five}, x)


def test_what_the_call_assigns_is_left_in_the_dict():
    net, state = Net(), {"calls": weft.full((), 7.0)}
    func.functional_call(net, state, (weft.ones(1),))
    assert (state["calls"].item(), net.calls.item()) == (8, 0)


def test_everything_is_put_back_after_an_error():
    net = Net()
    with pytest.raises(TypeError):
        func.functional_call(net, {"a": weft.ones(1), "other": weft.ones(1)}, (1, 2, 3))
    assert net.a.tolist() == [2]
    assert not hasattr(net, "other")


def test_names_are_checked_if_strict():
    net = Net()
    with pytest.raises(
        RuntimeError, match=r"reparametrizing for Net:\n\tUnexpected key\(s\): 'x'\.\n\tMissing key\(s\): 'a"
    ):
        func.functional_call(net, {"x": weft.ones(1), "shift": weft.ones(1)}, weft.ones(1), strict=True)
    assert func.functional_call(net, {"x": weft.ones(1)}, weft.ones(1)).tolist() == [4]


REFUSED = [
    (3, "^Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got <class 'int'>$"),
    ([3], "^Expected all elements of parameter_and_buffer_dicts to be dictionaries$"),
    (
        [{"a": None}, {"a": None}],
        r"^\['a'\] appeared in multiple dictionaries; behavior of functional call is ambiguous$",
    ),
]


@pytest.mark.parametrize(("dicts", "text"), REFUSED)
def test_dicts_that_do_not_fit_are_refused(dicts, text):
    with pytest.raises(ValueError, match=text):
        func.functional_call(Net(), dicts, weft.ones(1))


def test_the_older_place_is_deprecated():
    with pytest.warns(FutureWarning, match=r"^`torch\.nn\.utils\.stateless\.functional_call` is deprecated"):
        found = nn.utils.stateless.functional_call(Net(), {"a": weft.full((1,), 3.0)}, weft.ones(1))
    assert found.tolist() == [9]


def test_states_of_equal_models_are_stacked():
    models = [Net(), Net()]
    parameters, buffers = func.stack_module_state(models)
    assert {name: tuple(t.shape) for name, t in parameters.items()} == {"a": (2, 1), "shift": (2, 1)}
    assert all(t.is_leaf and t.requires_grad for t in parameters.values())
    assert buffers["calls"].tolist() == [0, 0]


def other_mode():
    models = [nn.ReLU(), nn.ReLU().eval()]
    return models


def other_flag():
    models = [nn.Linear(1, 1), nn.Linear(1, 1)]
    models[0].weight.requires_grad_(False)
    return models


UNLIKE = [
    (list, r"^stack_module_state: Expected at least one model, got 0\.$"),
    (other_mode, r"^stack_module_state: Expected all models to have the same training/eval mode\.$"),
    (lambda: [nn.ReLU(), nn.Tanh()], r"^stack_module_state: Expected all models to be of the same class\.$"),
    (other_flag, r"^Expected weight from each model to have the same \.requires_grad$"),
]


@pytest.mark.parametrize(("models", "text"), UNLIKE)
def test_unlike_models_are_refused(models, text):
    with pytest.raises(RuntimeError, match=text):
        func.stack_module_state(models())
