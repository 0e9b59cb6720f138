"""State dicts of other optimizers are refused, and those of older versions of the same are loaded."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import weft as torch
from weft import nn, optim
from weft.optim._origin import _options, kinds_of

KINDS = sorted(kinds_of(optim.Optimizer), key=lambda kind: kind.__name__)
NEW_OPTIONS = ("foreach", "maximize", "fused", "differentiable", "capturable", "decoupled_weight_decay")
"""Those that older releases do not save."""

ALIKE = {"Adam", "AdamW"}
"""Of these, one loads the state of the other, as in PyTorch."""


def made(kind: Any, lr: float = 0.25) -> Any:
    table = nn.Embedding(2, 3, sparse=kind is optim.SparseAdam)
    return kind(table.parameters(), lr=lr, **({"momentum": 0.9} if kind is optim.SGD else {}))


def stepped(kind: Any) -> Any:
    optimizer = made(kind)
    (param,) = optimizer.param_groups[0]["params"]

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.embedding(torch.tensor([0]), param, sparse=kind is optim.SparseAdam).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_the_options_are_those_of_the_constructor(kind):
    assert len(KINDS) == 15
    assert _options(kind).keys() == made(kind).defaults.keys()


@pytest.mark.parametrize("saved", KINDS)
def test_only_the_same_kind_of_optimizer_loads_a_state(saved):
    state = stepped(saved).state_dict()
    for kind in KINDS:
        for contents in (state, {**state, "state": {}}):
            optimizer = made(kind, lr=0.5)
            if kind is saved or {kind.__name__, saved.__name__} == ALIKE:
                optimizer.load_state_dict(contents)
                assert optimizer.param_groups[0]["lr"] == 0.25
                continue
            with pytest.raises(ValueError, match=f"is of .*{saved.__name__}.*this optimizer is {kind.__name__}"):
                optimizer.load_state_dict(contents)
            assert optimizer.param_groups[0]["lr"] == 0.5
            assert not any("step" in entry and float(entry["step"]) for entry in optimizer.state.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_an_older_version_is_loaded(kind):
    state = copy.deepcopy(stepped(kind).state_dict())
    for name in NEW_OPTIONS:
        state["param_groups"][0].pop(name, None)
    state["param_groups"][0]["initial_lr"] = 0.25
    optimizer = made(kind, lr=0.5)
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert all(name in optimizer.param_groups[0] for name in optimizer.defaults)


def test_names_of_state_tell_what_options_do_not():
    state = copy.deepcopy(stepped(optim.Adamax).state_dict())
    state["param_groups"][0] = {"params": [0], "lr": 0.25, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}
    optimizer = made(optim.Adam, lr=0.5)
    with pytest.raises(ValueError, match=r"does not fit Adam, but another optimizer: .*\['exp_avg', 'exp_inf'\], exp"):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.5


class WithDecay(optim.Adam):
    """A user's optimizer with an option of its own."""

    def __init__(self, params, lr=1e-3, final_lr=0.1):
        super().__init__(params, lr=lr)
        self.defaults["final_lr"] = final_lr
        self.__setstate__({})


class Lion(optim.Optimizer):
    """A user's optimizer, which once had only the options of another one."""

    def __init__(self, params, lr=1e-3, momentum=0.9, weight_decay=0.0, rho=1.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "rho": rho})


def test_optimizers_of_users():
    adam, own = made(optim.Adam), made(WithDecay, lr=0.5)
    own.load_state_dict(adam.state_dict())
    assert own.param_groups[0]["lr"] == 0.25
    adam.load_state_dict(own.state_dict())
    with pytest.raises(ValueError, match="is of SGD, and this optimizer is WithDecay"):
        own.load_state_dict(made(optim.SGD).state_dict())

    lion = made(Lion)
    state = lion.state_dict()
    del state["param_groups"][0]["rho"]
    lion.load_state_dict(state)
    assert lion.param_groups[0]["rho"] == 1.0
    with pytest.raises(ValueError, match="is of Adam or AdamW, and this optimizer is Lion"):
        lion.load_state_dict(made(optim.Adam).state_dict())


def test_schedulers_add_options():
    optimizer = made(optim.SGD)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
    optimizer.step()
    scheduler.step()
    other = made(optim.SGD)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["max_lr"] == 1.0
    with pytest.raises(ValueError, match="is of SGD"):
        made(optim.Adam).load_state_dict(optimizer.state_dict())
