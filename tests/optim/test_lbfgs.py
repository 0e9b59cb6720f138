"""L-BFGS and its line search. The numbers are PyTorch's."""

from __future__ import annotations

import math

import pytest

import weft
from weft import nn, optim
from weft.optim._line_search import Point, strong_wolfe


def valley(x):
    """Rosenbrock, 1960: least, zero, at (1, 1)."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def start():
    return nn.Parameter(weft.tensor([-1.2, 1.0], dtype=weft.float64))


def closure_of(optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = valley(x)
        loss.backward()
        return loss

    return closure


def test_a_line_search_finds_the_end_of_the_valley():
    x = start()
    optimizer = optim.LBFGS([x], max_iter=40, line_search_fn="strong_wolfe")
    assert optimizer.step(closure_of(optimizer, x)).item() == pytest.approx(24.2)
    assert x.tolist() == pytest.approx([0.999981421079, 0.999961965181], abs=1e-9)
    state = optimizer.state[x]
    assert (state["n_iter"], state["func_evals"]) == (35, 43)
    assert state["prev_loss"] == pytest.approx(4.221457511e-10, rel=1e-3)


def test_steps_of_a_given_length_lead_to_the_known_point():
    x = start()
    optimizer = optim.LBFGS([x], lr=0.01, max_iter=6)
    optimizer.step(closure_of(optimizer, x))
    assert x.tolist() == pytest.approx([-1.186349240976, 1.006354077403], abs=1e-10)
    assert optimizer.state[x]["func_evals"] == 6


def test_a_loaded_optimizer_goes_on_where_the_other_stopped():
    ends = []
    for reload in (False, True):
        x = start()
        optimizer = optim.LBFGS([x], lr=0.5, max_iter=3, history_size=3)
        for _ in range(3):
            optimizer.step(closure_of(optimizer, x))
            if reload:
                saved = optimizer.state_dict()
                optimizer = optim.LBFGS([x], lr=0.5, max_iter=3, history_size=3)
                optimizer.load_state_dict(saved)
        assert list(optimizer.state[x]) == [
            "func_evals",
            "n_iter",
            "al",
            "d",
            "t",
            "old_dirs",
            "old_stps",
            "ro",
            "H_diag",
            "prev_flat_grad",
            "prev_loss",
        ]
        assert len(optimizer.state[x]["old_dirs"]) <= 3
        ends.append(x.tolist())
    assert ends[0] == ends[1]


def test_complex_and_unused_parameters_take_part():
    x, z = start(), nn.Parameter(weft.tensor([1 + 2j], dtype=weft.complex128))
    unused = nn.Parameter(weft.ones(1, dtype=weft.float64))
    optimizer = optim.LBFGS([x, z, unused], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (x**2).sum() + ((z - 1j).abs() ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert x.tolist() == pytest.approx([0, 0], abs=1e-7)
    assert abs(z.item() - 1j) < 1e-7
    assert unused.tolist() == [1]


def test_a_point_without_slope_is_left_at_once():
    x = nn.Parameter(weft.ones(2, dtype=weft.float64))
    optimizer = optim.LBFGS([x])
    optimizer.step(closure_of(optimizer, x))
    assert optimizer.state[x] == {"func_evals": 1, "n_iter": 0}
    assert x.tolist() == [1, 1]


REFUSED = [
    ("optim.LBFGS([x], lr=-1)", ValueError, "Invalid learning rate: -1"),
    ("optim.LBFGS([x], lr=math.nan)", ValueError, "Invalid learning rate: nan"),
    (
        "optim.LBFGS([{'params': [x]}, {'params': [start()]}])",
        ValueError,
        r"LBFGS doesn't support per-parameter options \(parameter groups\)",
    ),
    ("optim.LBFGS([x], line_search_fn='no').step(None)", RuntimeError, "only 'strong_wolfe' is supported"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}$"):
        eval(text, {"optim": optim, "x": start(), "start": start, "math": math})


# --- the line search alone, on functions of one number ---


def line_of(function, slope):
    return lambda t: Point(t, function(t), None, slope(t))


LINES = [
    (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3), 0.1),
    (lambda t: (t - 0.01) ** 2, lambda t: 2 * (t - 0.01), 1.0),
    (lambda t: -math.sin(t) + 0.01 * t, lambda t: -math.cos(t) + 0.01, 20.0),
    (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2, 0.01),
]


@pytest.mark.parametrize(("function", "slope", "first"), LINES)
def test_the_search_ends_where_the_conditions_hold(function, slope, first):
    line = line_of(function, slope)
    begin = line(0.0)
    found, evaluations = strong_wolfe(line, begin, first, 1.0, 25)
    assert found.loss <= begin.loss + 1e-4 * found.t * begin.slope
    assert abs(found.slope) <= 0.9 * abs(begin.slope)
    assert evaluations <= 26


def test_the_search_ends_where_the_loss_has_no_bottom():
    found, evaluations = strong_wolfe(line_of(lambda t: -t, lambda t: -1.0), Point(0.0, 0.0, None, -1.0), 1.0, 1.0, 4)
    assert evaluations == 5
    assert found.t > 100


def test_the_search_gives_up_where_nothing_is_better():
    wall = line_of(lambda t: math.inf if t else 0.0, lambda t: math.nan)
    found, _ = strong_wolfe(wall, Point(0.0, 0.0, None, -1.0), 1.0, 1.0, 10)
    assert found.t == 0.0
