"""Averages of weights. The numbers are PyTorch's."""

from __future__ import annotations

import pytest

import weft
from weft import nn, optim
from weft.optim import swa_utils


def line(weight):
    layer = nn.Linear(1, 1, bias=False)
    with weft.no_grad():
        layer.weight.fill_(weight)
    return layer


AVERAGES = [
    ("", [1.0, 1.5, 2.0]),
    ("avg_fn=swa_utils.get_swa_avg_fn()", [1.0, 1.5, 2.0]),
    ("multi_avg_fn=swa_utils.get_swa_multi_avg_fn()", [1.0, 1.5, 2.0]),
    ("avg_fn=swa_utils.get_ema_avg_fn(0.75)", [1.0, 1.25, 1.6875]),
    ("multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75)", [1.0, 1.25, 1.6875]),
    ("avg_fn=lambda average, new, count: average + new * count", [1.0, 3.0, 9.0]),
]


@pytest.mark.parametrize(("text", "expected"), AVERAGES)
def test_the_average_of_three_models(text, expected):
    model = eval(f"swa_utils.AveragedModel(line(5.0), {text})", {"swa_utils": swa_utils, "line": line})
    found = []
    for weight in (1.0, 2.0, 3.0):
        model.update_parameters(line(weight))
        found.append(model.module.weight.item())
    assert found == pytest.approx(expected)
    assert model(weft.tensor([2.0])).item() == pytest.approx(2 * expected[-1])
    assert model.n_averaged.item() == 3
    assert list(model.state_dict()) == ["n_averaged", "module.weight"]


def test_the_copy_leaves_the_model_alone():
    source = line(1.0)
    model = swa_utils.AveragedModel(source)
    model.update_parameters(source)
    model.update_parameters(line(3.0))
    assert (source.weight.item(), model.module.weight.item()) == (1.0, 2.0)
    assert model.module.weight.requires_grad


@pytest.mark.parametrize(("use_buffers", "expected"), [(False, 3.0), (True, 2.0)])
def test_buffers_are_copied_or_averaged(use_buffers, expected):
    source = nn.BatchNorm1d(1)
    model = swa_utils.AveragedModel(source, use_buffers=use_buffers)
    for mean in (1.0, 3.0):
        source.running_mean.fill_(mean)
        model.update_parameters(source)
    assert model.module.running_mean.item() == expected


def test_statistics_of_batch_norms_are_computed_anew():
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.0)).eval()
    norm = model[0]
    norm.running_mean.fill_(9.0)
    batches = [weft.tensor([[1.0], [3.0]]), (weft.tensor([[5.0], [7.0]]), "target")]
    swa_utils.update_bn(batches, model)
    assert norm.running_mean.item() == pytest.approx(4.0)
    assert (norm.momentum, model.training) == (0.1, False)
    swa_utils.update_bn([3], nn.Linear(1, 1))  # nothing to do: the loader is not looked at


def test_an_error_in_the_model_puts_the_momentum_back():
    norm = nn.BatchNorm1d(1).eval()
    with pytest.raises(ValueError, match=r"^expected 2D or 3D input"):
        swa_utils.update_bn([weft.ones(1)], norm)
    assert (norm.momentum, norm.training) == (0.1, False)


RATES = [
    ("SWALR(o, 0.5, 3)", [0.875, 0.625, 0.5, 0.5]),
    ("SWALR(o, 0.5, 3, 'linear')", [5 / 6, 2 / 3, 0.5, 0.5]),
    ("SWALR(o, [0.25], 0)", [0.25, 0.25, 0.25, 0.25]),
]


@pytest.mark.parametrize(("text", "expected"), RATES)
def test_rates_of_four_epochs(text, expected):
    o = optim.SGD([weft.ones(1)], lr=1.0)
    schedule = eval(f"swa_utils.{text}", {"swa_utils": swa_utils, "o": o})
    found = []
    for _ in range(4):
        o.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    assert found == pytest.approx(expected)


REFUSED = [
    ("get_ema_avg_fn(1.5)", ValueError, r"Invalid decay value 1.5 provided. Please provide a value in \[0,1\] range."),
    ("get_ema_multi_avg_fn(-1)", ValueError, "Invalid decay value -1 provided. Please provide a value"),
    (
        "AveragedModel(line(1.0), avg_fn=max, multi_avg_fn=max)",
        AssertionError,
        "Only one of avg_fn and multi_avg_fn should be provided",
    ),
    ("SWALR(o, 1, -1)", ValueError, "anneal_epochs must be equal or greater than 0, got -1"),
    ("SWALR(o, 1, 1, 'no')", ValueError, "anneal_strategy must be one of 'cos' or 'linear', instead got no"),
    ("SWALR(o, [1, 2])", ValueError, "swa_lr must have the same length as optimizer.param_groups. swa_lr has 2 values"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    o = optim.SGD([weft.ones(1)], lr=1.0)
    with pytest.raises(kind, match=f"^{message}"):
        eval(f"swa_utils.{text}", {"swa_utils": swa_utils, "line": line, "o": o})
    assert "swa_lr" not in o.param_groups[0]
