"""Optimizers that are given their gradients."""

from __future__ import annotations

import pytest

import weft
from weft import nn, optim
from weft.distributed.optim import _FunctionalSGD, as_functional_optim, utils


def parameters(*sizes):
    weft.manual_seed(0)
    return [nn.Parameter(weft.randn(size)) for size in sizes]


OPTIONS = {
    optim.SGD: {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    optim.Adam: {"betas": (0.8, 0.99), "amsgrad": True},
    optim.AdamW: {"lr": 0.1},
}


@pytest.mark.parametrize("kind", utils.functional_optim_map)
def test_steps_are_those_of_the_optimizer(kind):
    options = {"lr": 0.05, **OPTIONS.get(kind, {})}
    by_one, by_all, expected = parameters(3, 4), parameters(3, 4), parameters(3, 4)
    single = as_functional_optim(kind, **options)
    whole = utils.functional_optim_map[kind](by_all, **options)
    reference = kind(expected, **options)
    for step in range(3):
        grads = [weft.randn(3), weft.randn(4) if step else None]
        for param, grad in zip(by_one, grads, strict=True):
            single.step_param(param, grad)
        whole.step(grads)
        for param, grad in zip(expected, grads, strict=True):
            param.grad = grad
        reference.step()
    for mine, other, right in zip(by_one, by_all, expected, strict=True):
        assert mine.tolist() == right.tolist()
        assert other.tolist() == right.tolist()
        assert mine.grad is None
    assert single.state.keys() == set(by_one) if single.state else not reference.state


def test_gradients_of_the_parameters_stay():
    (param,) = parameters(2)
    param.grad = kept = weft.ones(2)
    _FunctionalSGD([param], 1.0).step([weft.zeros(2)])
    assert param.grad is kept


def test_options_are_those_of_functional_optimizers():
    assert as_functional_optim(optim.SGD).defaults["lr"] == 0.01
    assert as_functional_optim(optim.Adamax).defaults["lr"] == 0.001
    assert as_functional_optim(optim.Adam, 0.5, (0.1, 0.2)).defaults["betas"] == (0.1, 0.2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: as_functional_optim(optim.LBFGS), ValueError, "LBFGS.* does not have a functional counterpart!.*Adam"),
        (lambda: _FunctionalSGD([]), ValueError, "^optimizer got an empty parameter list"),
        (lambda: _FunctionalSGD(parameters(2, 2)).step([None]), ValueError, "Params length: 2. Gradients length: 1"),
        (lambda: as_functional_optim(optim.SGD, -1.0), ValueError, "^Invalid learning rate: -1.0"),
    ],
)
def test_what_cannot_be_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_others_can_be_added(monkeypatch):
    class Mine:
        def __init__(self, params, lr, *, _allow_empty_param_list):
            self.arguments = params, lr, _allow_empty_param_list

    monkeypatch.setattr(utils, "functional_optim_map", dict(utils.functional_optim_map))
    utils.register_functional_optim("mine", Mine)
    utils.register_functional_optim("mine", None)
    assert as_functional_optim("mine", 0.1).arguments == ([], 0.1, True)
