"""Schedules of learning rates. The numbers are PyTorch's."""

from __future__ import annotations

import math

import pytest

import weft
from weft import optim
from weft.optim import lr_scheduler


def sgd():
    return optim.SGD([weft.ones(1)], lr=1.0, momentum=0.5)


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
    (
        "ChainedScheduler([lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.9)])",
        [0.09, 0.081, 0.729, 0.6561, 0.59049, 0.531441],
    ),
    ("PolynomialLR(o, 4, 2.0)", [0.5625, 0.25, 0.0625, 0.0, 0.0, 0.0]),
    ("CosineAnnealingWarmRestarts(o, 2, 2, 0.1)", [0.55, 1.0, 0.868198052, 0.55, 0.231801948, 1.0]),
    ("CyclicLR(o, 0.1, 0.5, 2)", [0.3, 0.5, 0.3, 0.1, 0.3, 0.5]),
    ("CyclicLR(o, 0.1, 0.5, 1, 2, 'exp_range', 0.5)", [0.3, 0.15, 0.1, 0.125, 0.10625, 0.1]),
    ("CyclicLR(o, 0.1, 0.5, 1, mode='triangular2')", [0.5, 0.1, 0.3, 0.1, 0.2, 0.1]),
    (
        "CyclicLR(o, 0.1, 0.5, 2, scale_fn=lambda x: 0.9**x, scale_mode='iterations')",
        [0.28, 0.424, 0.2458, 0.1, 0.218098, 0.3125764],
    ),
    (
        "OneCycleLR(o, 0.8, total_steps=8)",
        [0.655420084, 0.777553422, 0.649396523, 0.444787211, 0.226448799, 0.061313275],
    ),
    (
        "OneCycleLR(o, 0.8, epochs=4, steps_per_epoch=2, anneal_strategy='linear', three_phase=True)",
        [0.580571429, 0.470857143, 0.030476343, 0.022858057, 0.015239771, 0.007621486],
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
    assert found == pytest.approx(expected, abs=1e-8)
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
                saved, options = schedule.state_dict(), o.state_dict()
                o = sgd()
                schedule = eval(f"lr_scheduler.{text}")
                schedule.load_state_dict(saved)
                o.load_state_dict(options)
        rates.append(schedule.get_last_lr())
    assert rates[0] == pytest.approx(rates[1])


MOMENTA = [
    ("CyclicLR(o, 0.1, 0.5, 2)", [0.85, 0.8, 0.85, 0.9]),
    ("OneCycleLR(o, 0.8, total_steps=8)", [0.86882551, 0.852805833, 0.86882551, 0.894401776]),
]


@pytest.mark.parametrize(("text", "expected"), MOMENTA, ids=[case[0] for case in MOMENTA])
def test_momenta_go_against_the_rates(text, expected):
    for o in (sgd(), optim.Adam([weft.ones(1)])):
        schedule = eval(f"lr_scheduler.{text}")
        found = []
        for _ in range(4):
            o.step()
            schedule.step()
            group = o.param_groups[0]
            found.append(group["betas"][0] if "betas" in group else group["momentum"])
        assert found == pytest.approx(expected)


def test_a_plateau_makes_the_rate_smaller():
    o = sgd()
    schedule = lr_scheduler.ReduceLROnPlateau(o, patience=1, cooldown=1, min_lr=0.05)
    rates = []
    for metric in (3, weft.tensor(2.0), 2, 2, 2, 2, 2, 2, 1):
        schedule.step(metric)
        rates.append(o.param_groups[0]["lr"])
    assert rates == [1, 1, 1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
    assert (schedule.best, schedule.in_cooldown) == (1, False)
    twin = lr_scheduler.ReduceLROnPlateau(o, "max")
    twin.load_state_dict(schedule.state_dict())
    assert (twin.mode, twin.best, twin.mode_worse, twin.get_last_lr()) == ("min", 1, math.inf, [0.05])


PLATEAUS = [("max", "rel", 1.2, 1.05), ("max", "abs", 1.2, 1.05), ("min", "rel", 0.8, 0.95), ("min", "abs", 0.8, 0.95)]


@pytest.mark.parametrize(("mode", "kind", "better", "not_better"), PLATEAUS)
def test_what_counts_as_better(mode, kind, better, not_better):
    schedule = lr_scheduler.ReduceLROnPlateau(sgd(), mode, threshold=0.1, threshold_mode=kind)
    schedule.step(1.0)
    schedule.step(not_better)
    assert (schedule.best, schedule.num_bad_epochs) == (1.0, 1)
    schedule.step(better)
    assert (schedule.best, schedule.num_bad_epochs) == (better, 0)


def test_a_new_group_gets_the_common_least_rate():
    o = sgd()
    schedule, strict = (
        lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=0.5),
        lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[0.5]),
    )
    o.add_param_group({"params": weft.ones(1)})
    for _ in range(2):
        schedule.step(1)
    assert [group["lr"] for group in o.param_groups] == [0.5, 0.5]
    strict.step(1)
    with pytest.raises(RuntimeError, match=r"^The number of param groups in the `optimizer` \(2\) differs from when"):
        strict.step(1)


def test_a_schedule_may_jump_to_an_epoch():
    o = sgd()
    schedule = lr_scheduler.StepLR(o, 2)
    o.step()
    with pytest.warns(UserWarning, match=r"^The epoch parameter in `scheduler.step\(\)` was not necessary"):
        schedule.step(5)
    assert schedule.get_last_lr() == pytest.approx([0.01])


def test_restarts_take_fractions_of_epochs():
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 2, 2)
    schedule.step(4)
    assert (schedule.get_last_lr(), schedule.T_i) == ([0.5], 4)
    schedule.step(1.0)
    assert schedule.get_last_lr() == pytest.approx([0.5])
    with pytest.raises(ValueError, match=r"^Expected non-negative epoch, but got -1$"):
        schedule.step(-1)


def test_one_cycle_ends():
    o = sgd()
    schedule = lr_scheduler.OneCycleLR(o, 1.0, total_steps=1)
    o.step()
    schedule.step()
    with pytest.raises(ValueError, match=r"^Tried to step 2 times. The specified number of total steps is 1$"):
        schedule.step()


def test_a_schedule_before_the_optimizer_warns():
    schedule = lr_scheduler.StepLR(sgd(), 1)
    with pytest.warns(UserWarning, match=r"^Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        schedule.step()


def test_a_step_that_was_replaced_warns():
    o = sgd()
    schedule = lr_scheduler.StepLR(o, 1)
    o.step = lambda: None
    with pytest.warns(UserWarning, match=r"^Seems like `optimizer.step\(\)` has been overridden after learning rate"):
        schedule.step()


def test_a_schedule_made_after_the_optimizer_has_stepped_knows():
    o = sgd()
    first = lr_scheduler.StepLR(o, 1)
    o.step()
    second = lr_scheduler.StepLR(o, 1)
    first.step()
    second.step()


def test_an_optimizer_around_another_one_has_stepped():
    """As launchers write it: it has what the other one has, and the constructor of the base is not called."""

    class Around(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self.param_groups = inner.param_groups

        def step(self):
            self.inner.step()

    o = Around(sgd())
    schedule = lr_scheduler.StepLR(o, 1)
    o.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.1]


def test_rates_are_for_the_schedule_to_compute():
    schedule = lr_scheduler.ExponentialLR(sgd(), 0.5)
    with pytest.warns(UserWarning, match=r"^To get the last learning rate computed by the scheduler, please use"):
        schedule.get_lr()


def test_a_rate_that_is_a_tensor_stays_the_same_one():
    rate = weft.tensor(1.0)
    o = optim.SGD([weft.ones(1)], lr=rate)
    schedule = lr_scheduler.ExponentialLR(o, 0.5)
    o.step()
    schedule.step()
    assert o.param_groups[0]["lr"] is rate
    assert (rate.item(), schedule.get_last_lr()[0].item(), schedule.base_lrs[0].item()) == (0.5, 0.5, 1.0)


class Halves(lr_scheduler._LRScheduler):
    """What users write."""

    def get_lr(self):
        """Half the rate, every epoch."""
        return [group["lr"] * 0.5 for group in self.optimizer.param_groups]


def test_users_write_schedules():
    o = sgd()
    schedule = Halves(o)
    o.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.25]
    assert list(schedule.state_dict()) == [
        "base_lrs",
        "last_epoch",
        "_step_count",
        "_is_initial",
        "_get_lr_called_within_step",
        "_last_lr",
    ]


class Factor:
    """A function with state."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, epoch):
        return self.factor


@pytest.mark.parametrize(
    "text", ["LambdaLR(o, Factor({}))", "CyclicLR(o, 0.0, 1.0, 1, scale_fn=Factor({}), cycle_momentum=False)"]
)
def test_the_state_of_a_function_is_saved(text):
    o = sgd()
    scope = {**globals(), "o": o}
    source, target = (eval(f"lr_scheduler.{text.format(factor)}", scope) for factor in (0.5, 0.25))
    target.load_state_dict(source.state_dict())
    o.step()
    target.step()
    assert target.get_last_lr() == [0.5]


REFUSED = [
    ("StepLR(3, 1)", TypeError, "int is not an Optimizer"),
    ("LambdaLR(sgd(), [1, 2])", ValueError, "Expected 1 lr_lambdas, but got 2"),
    ("StepLR(sgd(), 1, last_epoch=3)", KeyError, "\"param 'initial_lr' is not specified in param_groups"),
    ("ConstantLR(sgd(), 2)", ValueError, "Constant multiplicative factor expected to be between 0 and 1."),
    ("MultiplicativeLR(sgd(), 1)", TypeError, "lr_lambda should be a function, but got int"),
    ("ReduceLROnPlateau(sgd(), factor=1)", ValueError, "Factor should be < 1.0."),
    ("ReduceLROnPlateau(sgd(), 'no')", ValueError, "mode no is unknown!"),
    ("ReduceLROnPlateau(sgd(), threshold_mode='no')", ValueError, "threshold mode no is unknown!"),
    ("ReduceLROnPlateau(sgd(), min_lr=[1, 2])", ValueError, "expected 1 min_lrs, got 2"),
    ("CyclicLR(sgd(), 0, 1, mode='no')", ValueError, "mode is invalid and scale_fn is None"),
    (
        "CyclicLR(sgd(), [0, 1], 1)",
        ValueError,
        r"base_lr must have the same length as optimizer.param_groups. base_lr has 2 values, param_groups has 1\.$",
    ),
    (
        "CyclicLR(optim.Adagrad([weft.ones(1)]), 0, 1)",
        ValueError,
        "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
    ),
    ("OneCycleLR(3, 1)", TypeError, "int is not an Optimizer"),
    ("OneCycleLR(sgd(), 1)", ValueError, r"You must define either total_steps OR \(epochs AND steps_per_epoch\)"),
    ("OneCycleLR(sgd(), 1, 0)", ValueError, "Expected positive integer total_steps, but got 0"),
    ("OneCycleLR(sgd(), 1, epochs=1, steps_per_epoch=1.5)", ValueError, "Expected positive integer steps_per_epoch"),
    ("OneCycleLR(sgd(), 1, 9, pct_start=2.0)", ValueError, "Expected float between 0 and 1 pct_start, but got 2.0"),
    ("OneCycleLR(sgd(), 1, 9, anneal_strategy='no')", ValueError, "anneal_strategy must be one of 'cos' or 'linear'"),
    ("CosineAnnealingWarmRestarts(sgd(), 0)", ValueError, "Expected positive integer T_0, but got 0"),
    ("CosineAnnealingWarmRestarts(sgd(), 1, 0)", ValueError, "Expected integer T_mult >= 1, but got 0"),
    ("CosineAnnealingWarmRestarts(sgd(), 1, 1, '')", ValueError, "Expected float or int eta_min, but got  of type"),
    ("ChainedScheduler([])", ValueError, "ChainedScheduler expects at least one scheduler to be chained, but got no"),
    ("ChainedScheduler([3], sgd())", TypeError, "ChainedScheduler at index 0 should have `optimizer` as its attribute"),
    (
        "ChainedScheduler([lr_scheduler.ReduceLROnPlateau(sgd())])",
        ValueError,
        "ChainedScheduler does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs",
    ),
    (
        "LinearLR(sgd(), 0)",
        ValueError,
        "Starting multiplicative factor expected to be greater than 0 and less or equal",
    ),
    ("LinearLR(sgd(), 1, 2)", ValueError, "Ending multiplicative factor expected to be between 0 and 1."),
    ("SequentialLR(sgd(), [], [])", ValueError, "SequentialLR expects at least one scheduler, but got no scheduler."),
    (
        "SequentialLR(sgd(), [lr_scheduler.StepLR(sgd(), 1)], [])",
        ValueError,
        "SequentialLR expects all schedulers to belong to the same optimizer",
    ),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_bad_schedules_are_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(f"lr_scheduler.{text}")
