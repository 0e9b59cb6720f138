"""Other parameters and state in an optimizer, for a while."""

from __future__ import annotations

import pytest

import weft
from weft import nn, optim
from weft.optim import swap_in_optimizer_params_and_state as swapped


def trained():
    x = nn.Parameter(weft.ones(2))
    optimizer = optim.SGD([x], lr=0.5, momentum=0.9)
    x.grad = weft.ones(2)
    optimizer.step()
    return x, optimizer


def test_a_step_inside_moves_the_other_parameters_alone():
    x, optimizer = trained()
    other = nn.Parameter(weft.zeros(2))
    other.grad = weft.ones(2)
    state = optimizer.state_dict()
    state["state"] = {0: {"momentum_buffer": weft.ones(2)}}
    state["param_groups"][0]["lr"] = 0.1
    with swapped(optimizer, {"x": other}, state):
        assert optimizer.param_groups[0]["params"][0] is other
        optimizer.step()
    assert other.tolist() == pytest.approx([-0.19, -0.19])
    assert state["state"][0]["momentum_buffer"].tolist() == pytest.approx([1.9, 1.9])
    assert x.tolist() == [0.5, 0.5]
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["params"][0] is x) == (0.5, True)
    assert list(optimizer.state) == [x]


def test_an_error_inside_puts_everything_back():
    x, optimizer = trained()
    with pytest.raises(KeyError), swapped(optimizer, {"x": nn.Parameter(weft.ones(2))}, optimizer.state_dict()):
        raise KeyError("x")
    assert optimizer.param_groups[0]["params"] == [x]


def group(**changes):
    return {**trained()[1].state_dict()["param_groups"][0], **changes}


REFUSED = [
    (3, "swap_in_optimizer_params_and_state requires a DCP-style optimizer state_dict."),
    (
        {"state": 3},
        "swap_in_optimizer_params_and_state requires swapin_optim_state['state'] to be a dict mapping packed parameter "
        "ids to per-param state dicts, got int.",
    ),
    (
        {"state": {0: 3}},
        "swap_in_optimizer_params_and_state requires per-parameter optimizer state entries to be dictionaries.",
    ),
    (
        {"state": {}, "param_groups": 3},
        "swap_in_optimizer_params_and_state requires swapin_optim_state['param_groups'] to be a list of param-group "
        "dicts, got int.",
    ),
    (
        {"state": {}, "param_groups": []},
        "swapin_optim_state has a different number of parameter groups than the live optimizer.",
    ),
    (
        {"state": {}, "param_groups": [3]},
        "swap_in_optimizer_params_and_state requires each optimizer param group to be a dictionary.",
    ),
    (
        {"state": {}, "param_groups": [{"params": ["a"]}]},
        "swap_in_optimizer_params_and_state requires optimizer.state_dict()-style param_groups[*]['params'] entries "
        "keyed by packed parameter ids.",
    ),
    (
        {"state": {}, "param_groups": [{"params": [0, 1]}]},
        "swapin_optim_state param group 0 has a different number of params than the live optimizer param group.",
    ),
    (
        {"state": {}, "param_groups": [{**group(), "more": 1}]},
        "swap_in_optimizer_params_and_state requires optimizer.state_dict()-style param group keys to exactly match "
        "the live optimizer group keys for group 0. Keys only in swap-in: ['more']. Keys only in live: [].",
    ),
    (
        {"state": {7: {}}, "param_groups": [group()]},
        "swap_in_optimizer_params_and_state requires swapin_optim_state['state'] to be keyed only by packed parameter "
        "ids from param_groups[*]['params']; got extra keys [7].",
    ),
]


@pytest.mark.parametrize(("state", "text"), REFUSED)
def test_what_does_not_fit_is_refused(state, text):
    _, optimizer = trained()
    with pytest.raises(RuntimeError) as found, swapped(optimizer, {"x": weft.ones(2)}, state):
        pass
    assert str(found.value) == text


def test_too_few_parameters_and_no_state_are_refused():
    _, optimizer = trained()
    text = "^swap_in_optimizer_params_and_state requires the explicit parameter state to match optimizer.param_groups"
    with pytest.raises(RuntimeError, match=text), swapped(optimizer, {}, optimizer.state_dict()):
        pass
    text = r"^swap_in_optimizer_params_and_state requires initialized optimizer state\.$"
    with pytest.raises(RuntimeError, match=text), swapped(optim.SGD([weft.ones(1)]), {}, {}):
        pass
