"""Optimizers: steps, state and refusals. The numbers are PyTorch's."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

import weft
from weft import nn, optim
from weft._base.state import ambient
from weft.errors import StateDictError


def two():
    return [
        nn.Parameter(weft.tensor([1.0, -2.0], dtype=weft.float64)),
        nn.Parameter(weft.tensor(3.0, dtype=weft.float64)),
    ]


def run(optimizer, params, steps=range(4)):
    for step in steps:
        for at, param in enumerate(params):
            param.grad = (param.detach() * (step + 1) + at).sin()
        if step == 1:
            params[1].grad = None
        optimizer.step()


STEPS = [
    ("SGD(p, lr=0.1)", [0.744347104089, -1.90922610322], 3.062157878736),
    (
        "SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)",
        [0.299164501194, -1.702680840251],
        3.094543907941,
    ),
    ("SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True)", [1.219437322641, -2.210689023825], 2.610516697050),
    ("Adam(p, lr=0.1, weight_decay=0.1)", [0.609332990358, -1.820219380899], 3.178320992360),
    ("Adam(p, lr=0.1, amsgrad=True, maximize=True)", [1.246116160565, -2.126344845896], 2.725015573391),
    ("AdamW(p, lr=0.1)", [0.606631715576, -1.87670654992], 3.207030907499),
    (
        "AdamW([{'params': p[:1], 'lr': 0.5}, {'params': p[1:]}], betas=(0.5, 0.6), eps=0.1)",
        [-0.138676290531, -1.703826427218],
        3.001666016106,
    ),
]


@pytest.mark.parametrize(("text", "first", "second"), STEPS, ids=[case[0] for case in STEPS])
def test_four_steps_lead_to_the_known_point(text, first, second):
    p = two()
    run(eval(f"optim.{text}"), p)
    assert p[0].tolist() == pytest.approx(first, abs=1e-10)
    assert p[1].item() == pytest.approx(second, abs=1e-10)
    assert all(param.is_leaf and param.requires_grad for param in p)


def test_half_precision_and_complex_parameters_step_in_their_own_type():
    half = nn.Parameter(weft.ones(1, dtype=weft.bfloat16))
    wide = nn.Parameter(weft.tensor([1 + 1j]))
    half.grad, wide.grad = weft.ones(1, dtype=weft.bfloat16), weft.tensor([1 - 1j])
    for kind in (optim.AdamW, optim.SGD):
        kind([half, wide], lr=0.1).step()
    assert (half.dtype, wide.dtype) == (weft.bfloat16, weft.complex64)
    assert wide.real.item() < 1 < wide.imag.item()


def test_state_is_laid_out_as_in_pytorch():
    p = two()
    optimizer = optim.AdamW([{"params": p[:1], "lr": 0.5}, {"params": p[1:]}])
    run(optimizer, p)
    state = optimizer.state_dict()
    assert [list(entry) for entry in state["state"].values()] == [["step", "exp_avg", "exp_avg_sq"]] * 2
    step = state["state"][0]["step"]
    assert (step.dtype, step.item(), state["state"][1]["step"].item()) == (weft.float32, 4, 3)
    assert state["param_groups"][0] == {
        "lr": 0.5, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.01, "amsgrad": False, "maximize": False,
        "foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": True,
        "params": [0],
    }  # fmt: skip
    assert list(optim.SGD(p, lr=1).state_dict()["param_groups"][0]) == [
        "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable", "fused",
        "params",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [STEPS[1][0], STEPS[4][0], STEPS[6][0]])
def test_a_loaded_optimizer_goes_on_where_the_other_stopped(text):
    def make(p):
        return eval(f"optim.{text}", {"optim": optim, "p": p})

    whole, parts = two(), two()
    run(make(whole), whole)
    first = make(parts)
    run(first, parts, range(2))
    second = make(parts)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(second, parts, range(2, 4))
    assert [x.tolist() for x in parts] == [x.tolist() for x in whole]


def test_loading_casts_state_but_not_steps():
    p = [nn.Parameter(weft.ones(2))]
    source = optim.Adam(p)
    p[0].grad = weft.ones(2)
    source.step()
    target = optim.Adam([nn.Parameter(weft.ones(2, dtype=weft.float64))])
    target.load_state_dict(source.state_dict())
    (state,) = target.state.values()
    assert (state["exp_avg"].dtype, state["step"].dtype) == (weft.float64, weft.float32)


def test_an_optimizer_is_pickled_with_its_parameters():
    layer = nn.Linear(1, 1)
    twin = pickle.loads(pickle.dumps(optim.SGD(layer.parameters(), lr=0.5)))
    assert twin.param_groups[0]["lr"] == 0.5
    assert twin.param_groups[0]["params"][0].tolist() == layer.weight.tolist()
    twin.step()


REFUSED = [
    ("optim.SGD([], lr=1)", ValueError, "optimizer got an empty parameter list"),
    (
        "optim.SGD(x, lr=1)", TypeError,
        "params argument given to the optimizer should be an iterable of Tensors or dicts",
    ),
    ("optim.SGD([x], lr=-1)", ValueError, "Invalid learning rate: -1"),
    ("optim.SGD([x], lr=math.nan)", ValueError, "Invalid learning rate: nan"),
    ("optim.SGD([x], momentum=-1)", ValueError, "Invalid momentum value: -1"),
    ("optim.SGD([x], weight_decay=-1)", ValueError, "Invalid weight_decay value: -1"),
    ("optim.SGD([x], nesterov=True)", ValueError, "Nesterov momentum requires a momentum and zero dampening"),
    ("optim.Adam([x], eps=-1.0)", ValueError, "Invalid epsilon value: -1.0"),
    ("optim.Adam([x], betas=(1.0, 0.1))", ValueError, "Invalid beta parameter at index 0: 1.0"),
    ("optim.AdamW([x], betas=(0.1, math.nan))", ValueError, "Invalid beta parameter at index 1: nan"),
    ("optim.SGD([3], lr=1)", TypeError, "optimizer can only optimize Tensors, but one of the params is int"),
    ("optim.SGD([weft.ones(1, requires_grad=True) * 2], lr=1)", ValueError, "can't optimize a non-leaf Tensor"),
    (
        "optim.SGD([{'params': {x}}], lr=1)", TypeError,
        "optimizer parameters need to be organized in ordered collections",
    ),
    (
        "optim.SGD([{'params': x}, {'params': x}])", ValueError,
        "some parameters appear in more than one parameter group",
    ),
    ("optim.SGD([x, x])", ValueError, "optimizer contains a parameter group with duplicate parameters"),
    ("optim.SGD([x]).add_param_group(3)", TypeError, "param_group must be a dict, but got <class 'int'>"),
    ("optim.SGD([('x', x), weft.ones(1)])", ValueError, "all optimizer params should be with/without names. Some"),
    (
        "optim.SGD([('x', x)]).add_param_group({'params': weft.ones(1)})", ValueError,
        "all optimizer param groups should be with/without names. cannot add param group without names",
    ),
    (
        "optim.SGD([x]).load_state_dict({'state': {}, 'param_groups': []})", StateDictError,
        "loaded state dict has a different number of parameter groups",
    ),
    (
        "optim.SGD([x]).load_state_dict({'state': {}, 'param_groups': [{'params': [1, 2]}]})", ValueError,
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    x = weft.ones(2)
    assert x is not None
    assert math is not None
    with pytest.raises(kind, match=f"^{message}"):
        eval(text)


def test_groups_print_their_options():
    assert repr(optim.SGD([{"params": weft.ones(1)}, {"params": weft.ones(1), "lr": 2}], lr=1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 1\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n\n"
        "Parameter Group 1\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 2\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n)"
    )


def test_a_closure_is_computed_with_gradients():
    x = nn.Parameter(weft.ones(1))
    optimizer = optim.SGD([("x", x)], lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == ["x"]

    def closure():
        optimizer.zero_grad()
        loss = (x * 2).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert optimizer.step(closure).item() == 2
    assert x.tolist() == [0]
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0]
    optimizer.zero_grad()
    assert x.grad is None
    assert optimizer.step() is None


def test_hooks_run_around_steps_and_state_dicts():
    x, calls = nn.Parameter(weft.ones(1)), []
    optimizer = optim.SGD([x], lr=1)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("saving"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda _, state: calls.append(state["more"]))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "saving", 1, "loaded"]
    optimizer.register_step_pre_hook(lambda *_: 3)
    with pytest.raises(
        RuntimeError, match=r"^step must return None or a tuple of \(new_args, new_kwargs\), but got 3\.$"
    ):
        optimizer.step()


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
def test_a_step_is_one_program_whatever_the_learning_rate(kind, compilations):
    params = two()
    optimizer = kind(params, **({"momentum": 0.9} if kind is optim.SGD else {}))
    run(optimizer, params, range(1))
    run(optimizer, params, range(2, 4))
    compilations()
    optimizer.param_groups[0]["lr"] = 0.3
    run(optimizer, params, range(4, 6))
    assert len(compilations()) == 0
    assert not ambient().pending


def test_views_of_parameters_see_the_step():
    x = nn.Parameter(weft.ones(2))
    seen = x.detach()
    x.grad = weft.ones(2)
    optim.SGD([x], lr=1.0).step()
    assert seen.tolist() == [0, 0]
