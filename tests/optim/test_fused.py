"""What every optimizer of one application per step has in common."""

from __future__ import annotations

import math

import pytest

import weft
from weft import nn, optim
from weft._base.state import ambient
from weft.optim import lr_scheduler

ALL = [
    "SGD(p, momentum=0.9)",
    "Adam(p, amsgrad=True)",
    "AdamW(p)",
    "RMSprop(p, momentum=0.5, centered=True)",
    "Adagrad(p)",
    "Adadelta(p)",
    "Adamax(p)",
    "NAdam(p)",
    "RAdam(p)",
    "ASGD(p)",
    "Rprop(p)",
    "Adafactor(p)",
    "Muon(p)",
]


def two():
    return [nn.Parameter(weft.tensor([[1.0, -2.0]])), nn.Parameter(weft.tensor([[3.0], [0.5]]))]


def make(text, p):
    return eval(f"optim.{text}", {"optim": optim, "p": p})


def step(optimizer, params):
    for at, param in enumerate(params):
        param.grad = (param.detach() + at).sin()
    optimizer.step()


def train(text, compiled, compilations):
    """Where five epochs of a schedule lead, and what was compiled in the last two."""
    x = nn.Parameter(weft.tensor([[1.0, -2.0]]))
    optimizer = make(text, [x])
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)

    def epoch():
        optimizer.zero_grad()
        (x.sin() * x).sum().backward()
        optimizer.step()

    run = weft.compile(epoch, fullgraph=True) if compiled else epoch
    for at in range(5):
        run()
        schedule.step()
        if at == 2:
            compilations()
    assert not ambient().pending
    return x.tolist()[0], compilations()


@pytest.mark.parametrize("text", [*ALL[:3], *(pytest.param(text, marks=pytest.mark.soak) for text in ALL[3:])])
def test_a_schedule_compiles_nothing_and_a_compiled_step_follows_it(text, compilations):
    plain, first = train(text, False, compilations)
    compiled, second = train(text, True, compilations)
    assert not first
    assert not second
    assert plain == pytest.approx(compiled, rel=1e-5)


@pytest.mark.parametrize("text", ALL)
def test_a_rate_that_is_nan_is_refused_before_anything_changes(text):
    params = two()
    optimizer = make(text, [{"params": params[:1]}, {"params": params[1:]}])
    step(optimizer, params)
    before = [param.tolist() for param in params]
    name = "step_sizes" if text.startswith("Rprop") else "lr"
    optimizer.param_groups[1][name] = (math.nan, 1.0) if name == "step_sizes" else math.nan
    wanted = "step_sizes" if name == "step_sizes" else "learning rate"
    with pytest.raises(ValueError, match=f"^Invalid {wanted}: nan$"):
        step(optimizer, params)
    assert [param.tolist() for param in params] == before
    assert not [entry for entry in optimizer.state.values() if "step" in entry and entry["step"].item() != 1]


def test_a_rate_may_be_a_tensor_that_changes(compilations):
    x = nn.Parameter(weft.ones(2))
    rate = weft.tensor(0.5)
    optimizer = optim.SGD([x], lr=rate)
    x.grad = weft.ones(2)
    optimizer.step()
    compilations()
    rate.fill_(0.25)
    optimizer.step()
    assert x.tolist() == [0.25, 0.25]
    assert len(compilations()) <= 1  # the fill


@pytest.mark.parametrize("text", ["Adam(p)", "NAdam(p)"])
def test_parameters_of_one_age_share_their_counters(text):
    params = two()
    optimizer = make(text, params)
    step(optimizer, params)
    first, second = optimizer.state.values()
    assert first["step"]._read() is second["step"]._read()
    params[0].grad = None
    optimizer.step()
    assert (first["step"].item(), second["step"].item()) == (1, 2)


def test_counts_take_the_default_type_where_it_is_double():
    weft.set_default_dtype(weft.float64)
    x = nn.Parameter(weft.ones(1))
    optimizer = optim.Adagrad([x])
    assert optimizer.state[x]["step"].dtype is weft.float64


def test_counts_of_old_state_dicts_are_numbers():
    x = nn.Parameter(weft.ones(1))
    source = optim.Adam([x])
    x.grad = weft.ones(1)
    source.step()
    saved = source.state_dict()
    saved["state"][0] = {**saved["state"][0], "step": 7}
    target = optim.Adam([x])
    target.load_state_dict(saved)
    target.step()
    assert target.state[x]["step"].item() == 8


def test_without_momentum_there_is_no_state():
    x = nn.Parameter(weft.ones(1))
    optimizer = optim.SGD([x], lr=1)
    x.grad = weft.ones(1)
    optimizer.step()
    assert optimizer.state_dict()["state"] == {}


def test_an_option_that_asks_for_more_state_gets_it():
    x = nn.Parameter(weft.ones(1))
    optimizer = optim.Adam([x])
    x.grad = weft.ones(1)
    optimizer.step()
    optimizer.param_groups[0]["amsgrad"] = True
    optimizer.step()
    assert list(optimizer.state[x]) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]


@pytest.mark.parametrize("kind", [optim.Adafactor, optim.Muon])
def test_complex_parameters_are_refused_where_they_have_no_meaning(kind):
    x = nn.Parameter(weft.ones(1, 1, dtype=weft.complex64))
    x.grad = weft.ones(1, 1, dtype=weft.complex64)
    with pytest.raises(RuntimeError, match=f"^{kind.__name__} does not support complex parameters$"):
        kind([x]).step()


BAD_ITERATIONS = [
    ({"ns_steps": 100}, "Number of steps must be less than 100 for computational efficiency"),
    ({"ns_coefficients": (1.0, 2.0, 3.0, 4.0)}, "Coefficients must be a tuple of exactly 3 values"),
]


@pytest.mark.parametrize(("options", "text"), BAD_ITERATIONS)
def test_bad_iterations_are_refused(options, text):
    x = nn.Parameter(weft.ones(1, 1))
    x.grad = weft.ones(1, 1)
    with pytest.raises(ValueError, match=f"^{text}$"):
        optim.Muon([x], **options).step()


def test_a_captured_step_follows_gradients_groups_and_loaded_state():
    def train(compiled):
        params = [weft.tensor([value], requires_grad=True) for value in (1.0, 3.0)]
        optimizer = optim.SGD(params[:1], lr=0.1, momentum=0.9)
        step = weft.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
        for at in range(9):
            if at == 3:
                optimizer.add_param_group({"params": params[1:], "lr": 0.5})
            if at == 6:
                optimizer.load_state_dict(optimizer.state_dict())
                optimizer.param_groups[0]["lr"] = 0.2
            for param in params:
                param.grad = weft.tensor([float(at)])
            step()
        return [param.item() for param in params], optimizer.state[params[0]]["momentum_buffer"].item()

    (found, momentum), (expected, wanted) = train(True), train(False)
    assert found == pytest.approx(expected, rel=1e-6)
    assert momentum == pytest.approx(wanted, rel=1e-6)


def test_a_loaded_state_goes_on_with_the_same_program(compilations):
    def started():
        weft.manual_seed(0)
        model = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Linear(4, 2))
        return model, weft.optim.AdamW(model.parameters(), 0.1)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(weft.ones(2, 3)).sum().backward()
        optimizer.step()
        return [p.tolist() for p in model.parameters()]

    first, second = started(), started()
    step(*first)
    step(*first)
    for new, old in zip(second, first, strict=True):
        new.load_state_dict(old.state_dict())
    expected = step(*first)
    compilations()
    assert step(*second) == expected
    assert not compilations()
