"""Schedules of learning rates. The numbers are PyTorch's."""

from __future__ import annotations

import pytest

import weft
from weft import optim
from weft.optim import lr_scheduler


def sgd():
    return optim.SGD([weft.ones(1)], lr=1.0)


RATES = [
    ("LambdaLR(o, lambda epoch: 0.5**epoch)", [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
    ("MultiplicativeLR(o, lambda epoch: 0.5)", [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
    ("StepLR(o, 2)", [1.0, 0.1, 0.1, 0.01, 0.01, 0.001]),
    ("MultiStepLR(o, [2, 2, 4])", [1.0, 0.01, 0.01, 0.001, 0.001, 0.001]),
    ("ExponentialLR(o, 0.5)", [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]),
    ("ConstantLR(o, 0.5, 3)", [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]),
    ("LinearLR(o, 0.1, 0.9, 4)", [0.3, 0.5, 0.7, 0.9, 0.9, 0.9]),
    ("CosineAnnealingLR(o, 2, 0.01)", [0.505, 0.01, 0.505, 1.0, 0.505, 0.01]),
    (
        "SequentialLR(o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)], [3])",
        [0.1, 1.0, 1.0, 0.9, 0.81, 0.729],
    ),
]


@pytest.mark.parametrize(("text", "expected"), RATES, ids=[case[0] for case in RATES])
def test_rates_of_six_epochs(text, expected):
    o = sgd()
    schedule = eval(f"lr_scheduler.{text}")
    found = []
    for _ in range(6):
        o.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    assert found == pytest.approx(expected, abs=1e-9)
    assert o.param_groups[0]["lr"] == found[-1]


@pytest.mark.parametrize("text", [case[0] for case in RATES])
def test_a_loaded_schedule_goes_on_where_the_other_stopped(text):
    rates = []
    for stop in (False, True):
        o = sgd()
        schedule = eval(f"lr_scheduler.{text}")
        for epoch in range(4):
            o.step()
            schedule.step()
            if stop and epoch == 1:
                saved, rate = schedule.state_dict(), o.param_groups[0]["lr"]
                o = sgd()
                schedule = eval(f"lr_scheduler.{text}")
                schedule.load_state_dict(saved)
                o.param_groups[0]["lr"] = rate
        rates.append(schedule.get_last_lr())
    assert rates[0] == pytest.approx(rates[1])


def test_a_schedule_may_jump_to_an_epoch():
    o = sgd()
    schedule = lr_scheduler.StepLR(o, 2)
    o.step()
    schedule.step(5)
    assert schedule.get_last_lr() == pytest.approx([0.01])


def test_a_schedule_before_the_optimizer_warns():
    schedule = lr_scheduler.StepLR(sgd(), 1)
    with pytest.warns(UserWarning, match=r"^Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        schedule.step()


REFUSED = [
    ("StepLR(3, 1)", TypeError, "int is not an Optimizer"),
    ("LambdaLR(sgd(), [1, 2])", ValueError, "Expected 1 lr_lambdas, but got 2"),
    ("StepLR(sgd(), 1, last_epoch=3)", KeyError, '"param \'initial_lr\' is not specified in param_groups'),
    ("ConstantLR(sgd(), 2)", ValueError, "Constant multiplicative factor expected to be between 0 and 1."),
    (
        "LinearLR(sgd(), 0)", ValueError,
        "Starting multiplicative factor expected to be greater than 0 and less or equal",
    ),
    ("LinearLR(sgd(), 1, 2)", ValueError, "Ending multiplicative factor expected to be between 0 and 1."),
    ("SequentialLR(sgd(), [], [])", ValueError, "SequentialLR expects at least one scheduler, but got no scheduler."),
    (
        "SequentialLR(sgd(), [lr_scheduler.StepLR(sgd(), 1)], [])", ValueError,
        "SequentialLR expects all schedulers to belong to the same optimizer",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_bad_schedules_are_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(f"lr_scheduler.{text}")
