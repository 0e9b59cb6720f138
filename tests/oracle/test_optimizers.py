"""Optimizers and schedules follow PyTorch's, through every configuration that PyTorch tests."""

from __future__ import annotations

import warnings

import pytest

import weft
from tests.oracle.optimizers import (
    BFLOAT16,
    MATRICES,
    ROWS,
    SCHEDULES,
    SHAPES,
    STEPS_ARE_TENSORS,
    TOLERANCE,
    Side,
    as_arrays,
    copied,
    differences,
    infos,
    numbers,
    ours,
    theirs,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

INFOS = {info.name: info for info in infos()}
CONFIGS = [
    pytest.param(name, config.kwargs, id=f"{name}-{config.desc}")
    for name, info in INFOS.items()
    for config in info.optim_inputs_func(device="cpu")
]
ERRORS = [
    pytest.param(name, error, id=f"{name}-{error.optimizer_error_input.desc}")
    for name, info in INFOS.items()
    for error in info.optim_error_inputs_func(device="cpu", dtype=torch.float32)
    if error.error_type is not UserWarning  # a parameter twice in a group is an error here
    and "dense params required" not in error.optimizer_error_input.desc  # there are no sparse ones
]
LOOSE = {"Muon": BFLOAT16 / TOLERANCE["float64"], "LBFGS": 1e3}
COMPLEX = [name for name, info in INFOS.items() if info.supports_complex]


def shapes_of(name):
    """LBFGS adds up all parameters, so that float32 ones would decide where it goes."""
    if name == "LBFGS":
        return {"float64": SHAPES["float64"]}
    return MATRICES if name == "Muon" else ROWS if name == "SparseAdam" else SHAPES


def sides(name, options, *, dtypes=None, seed=0):
    arrays = numbers(name, dtypes or shapes_of(name), seed)
    grouped = INFOS[name].supports_param_groups
    options = {**options, "max_iter": 5} if name == "LBFGS" else options  # roundings grow where it has arrived
    return (
        Side(weft, name, arrays, ours(options), grouped),
        Side(torch, name, arrays, {key: _their_own(value) for key, value in options.items()}, grouped),
    )


def _their_own(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def step(left, right, seed, *, skip=None, dtypes=None):
    grads = numbers(left.name, dtypes or shapes_of(left.name), seed)
    if skip is not None:
        grads[skip] = None
    left.step(grads)
    right.step(grads)


def check(left, right):
    loose = LOOSE.get(left.name, 1)
    assert not list(differences(left.name, left.params, as_arrays([p.data for p in right.params]), "param", loose))
    mine, other = copied(left.optimizer.state_dict()), as_arrays(right.optimizer.state_dict())
    if left.name in STEPS_ARE_TENSORS:
        assert [int(entry.pop("step")) for entry in mine["state"].values()] == [
            entry.pop("step") for entry in other["state"].values()
        ]
    if left.name == "LBFGS":
        _check_lbfgs(mine["state"], other["state"])
    assert not list(differences(left.name, mine, other, "state dict", LOOSE.get(left.name, 1)))


def _check_lbfgs(mine, other):
    """Ours keeps the step's length as a number, and no scratch."""
    for state, their in zip(mine.values(), other.values(), strict=True):
        assert list(state) == list(their)
        state.pop("al", None)
        their.pop("al", None)
        assert state.pop("t", 0) == pytest.approx(float(their.pop("t", 0)))


@pytest.mark.parametrize(("name", "options"), CONFIGS)
def test_three_steps_lead_to_the_same_point_and_state(name, options):
    left, right = sides(name, options)
    check(left, right)
    for seed in (1, 2, 3):
        step(left, right, seed)
        check(left, right)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_parameters(name):
    dtypes = {"complex128": [(2, 2), (3,), ()]}
    left, right = sides(name, {}, dtypes=dtypes)
    for seed in (1, 2):
        step(left, right, seed, dtypes=dtypes)
        check(left, right)


@pytest.mark.parametrize("name", INFOS)
def test_a_parameter_may_miss_steps_and_states_load_both_ways(name):
    left, right = sides(name, {})
    step(left, right, 1)
    step(left, right, 2, skip=1)
    step(left, right, 3)
    if name not in STEPS_ARE_TENSORS:
        check(left, right)
    arrays = [param.detach().numpy().copy() for param in right.params]
    mine, other = (Side(torch_, name, arrays, {}, INFOS[name].supports_param_groups) for torch_ in (weft, torch))
    mine.optimizer.load_state_dict(ours(right.optimizer.state_dict()))
    other.optimizer.load_state_dict(theirs(left.optimizer.state_dict()))
    for seed in (4, 5):
        step(mine, other, seed)
    loose = 1e3 if name == "SparseAdam" else LOOSE.get(name, 10)  # on a tensor, it takes powers in float32
    assert not list(differences(name, mine.params, as_arrays([p.data for p in other.params]), "param", loose))


@pytest.mark.parametrize(("name", "error"), ERRORS)
def test_bad_options_are_refused_in_the_same_words(name, error):
    given = error.optimizer_error_input
    params = [weft.nn.Parameter(weft.ones(1, 1))] if given.params is None else _parameters(given.params, {})
    for param in params if isinstance(params, list) and isinstance(params[0], weft.Tensor) else []:
        param.grad = weft.ones_like(param)
    with pytest.raises(error.error_type, match=error.error_regex):
        getattr(weft.optim, name)(params, **ours(given.kwargs)).step()


def _parameters(value, made):
    """A parameter that comes twice comes twice here, too."""
    if isinstance(value, torch.Tensor):
        return made.setdefault(id(value), weft.nn.Parameter(ours(value.detach())))
    if isinstance(value, dict):
        return {key: _parameters(entry, made) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_parameters(entry, made) for entry in value)
    return value


# --- schedules ---


def schedule_of(framework, text):
    params = [framework.nn.Parameter(framework.ones(1)) for _ in range(2)]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.05}]
    o = framework.optim.SGD(groups, lr=0.1, momentum=0.5)
    s, swa = framework.optim.lr_scheduler, framework.optim.swa_utils
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a nested schedule makes its first step again
        return o, eval(text if text.startswith("swa") else f"s.{text}", {"o": o, "s": s, "swa": swa})


def advance(o, schedule, epoch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jumps of a nested schedule
        o.step()
        schedule.step(*([(epoch * 7 % 11) / 5] if "Plateau" in type(schedule).__name__ else []))


def options_of(o):
    return [{key: value for key, value in group.items() if key != "params"} for group in o.param_groups]


@pytest.mark.parametrize("text", SCHEDULES)
def test_fifty_epochs_of_a_schedule(text):
    (mine, left), (other, right) = schedule_of(weft, text), schedule_of(torch, text)
    for epoch in range(50):
        assert left.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-9, abs=1e-12)
        assert not list(differences("", options_of(mine), options_of(other), "options"))
        advance(mine, left, epoch)
        advance(other, right, epoch)
        if epoch in (1, 16, 33):
            assert not list(differences("", left.state_dict(), right.state_dict(), "state dict"))
        if epoch == 16:  # go on from the other's state
            saved, options = right.state_dict(), other.state_dict()["param_groups"]
            mine, left = schedule_of(weft, text)
            left.load_state_dict(saved)
            mine.load_state_dict({"state": {}, "param_groups": options})


@pytest.mark.parametrize("text", [text for text in SCHEDULES if "Chained" not in text and "Sequential" not in text])
def test_a_schedule_jumps_to_an_epoch(text):
    if "Plateau" in text:
        return
    (mine, left), (other, right) = schedule_of(weft, text), schedule_of(torch, text)
    for epoch in (3, 9, 9, 40, 2, 0):
        advance(mine, left, 0)
        advance(other, right, 0)
        with warnings.catch_warnings(record=True) as my_warnings:
            warnings.simplefilter("always")
            left.step(epoch)
        with warnings.catch_warnings(record=True) as their_warnings:
            warnings.simplefilter("always")
            right.step(epoch)
        assert [str(w.message) for w in my_warnings] == [str(w.message) for w in their_warnings]
        assert left.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-9, abs=1e-12)


def test_the_warnings_are_pytorchs():
    texts = []
    for framework in (weft, torch):
        _, schedule = schedule_of(framework, "StepLR(o, 3)")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            schedule.step()
            schedule.get_lr()
            o, schedule = schedule_of(framework, "StepLR(o, 3)")
            o.step = lambda: None
            schedule.step()
        texts.append([str(warning.message) for warning in found])
    assert len(texts[0]) == 3
    assert texts[0] == texts[1]


# --- averages ---


def averaged(framework, options, arrays):
    """The state of an averaged model after updates from models with these weights, and statistics from batches."""
    swa = framework.optim.swa_utils
    made = {key: getattr(swa, value[0])(*value[1:]) if isinstance(value, tuple) else value for key, value in options}
    model = framework.nn.Sequential(framework.nn.Linear(2, 3), framework.nn.BatchNorm1d(3)).double()
    average = swa.AveragedModel(model, **made)
    for array in arrays:
        with framework.no_grad():
            model[0].weight.copy_(framework.tensor(array))
        model(framework.tensor(array))
        average.update_parameters(model)
    swa.update_bn([framework.tensor(array) for array in arrays], average)
    return average.state_dict()


AVERAGES = [
    {},
    {"use_buffers": True},
    {"avg_fn": ("get_swa_avg_fn",)},
    {"multi_avg_fn": ("get_swa_multi_avg_fn",)},
    {"avg_fn": ("get_ema_avg_fn", 0.7)},
    {"multi_avg_fn": ("get_ema_multi_avg_fn", 0.7), "use_buffers": True},
]


@pytest.mark.parametrize("options", AVERAGES, ids=str)
def test_averages_of_models(options):
    arrays = numbers("", {"float64": [(3, 2)] * 3}, 1)
    mine, other = (dict(averaged(framework, options.items(), arrays)) for framework in (weft, torch))
    for state in (mine, other):
        state.pop("module.0.bias")  # random
    mine, other = ({k: v for k, v in state.items() if "running_mean" not in k} for state in (mine, other))
    loose = 1e2  # PyTorch rounds the weight of a list's mean to float32
    assert not list(differences("", mine, as_arrays(other), "state dict", loose))
