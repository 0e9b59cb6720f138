"""Initial values: their distributions and what they refuse."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import init


def numbers(fill, *shape):
    parameter = nn.Parameter(weft.zeros(shape or (100, 50)))
    assert fill(parameter) is parameter
    assert parameter.requires_grad
    assert parameter.grad_fn is None
    return parameter.detach().numpy()


BOUNDED = [
    ("uniform_", lambda t: init.uniform_(t, -2, 1), -2, 1),
    ("xavier_uniform_", lambda t: init.xavier_uniform_(t, 2.0), -2 * math.sqrt(6 / 150), 2 * math.sqrt(6 / 150)),
    ("kaiming_uniform_", lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), -math.sqrt(1 / 50), math.sqrt(1 / 50)),
    ("trunc_normal_", lambda t: init.trunc_normal_(t, 0.0, 1.0, -0.5, 0.25), -0.5, 0.25),
]


@pytest.mark.parametrize(("fill", "low", "high"), [case[1:] for case in BOUNDED], ids=[case[0] for case in BOUNDED])
def test_bounded_numbers_fill_their_range(fill, low, high):
    found = numbers(fill)
    slack = (high - low) / 100
    assert low - 1e-6 <= found.min() < low + slack
    assert high - slack < found.max() <= high + 1e-6


SPREAD = [
    ("normal_", lambda t: init.normal_(t, 1.0, 2.0), 1.0, 2.0),
    ("xavier_normal_", init.xavier_normal_, 0.0, math.sqrt(2 / 150)),
    (
        "kaiming_normal_",
        lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
        0.0,
        math.sqrt(2 / 100),
    ),
]


@pytest.mark.parametrize(("fill", "mean", "std"), [case[1:] for case in SPREAD], ids=[case[0] for case in SPREAD])
def test_normal_numbers_have_mean_and_spread(fill, mean, std):
    found = numbers(fill)
    assert found.mean() == pytest.approx(mean, abs=0.1 * std)
    assert found.std() == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 2, 2)])
def test_orthogonal_matrices_are_orthogonal(shape):
    found = numbers(lambda t: init.orthogonal_(t, 2.0), *shape).reshape(shape[0], -1)
    short = found if found.shape[0] <= found.shape[1] else found.T
    np.testing.assert_allclose(short @ short.T, 4 * np.eye(len(short)), atol=1e-5)


def test_plain_fills():
    assert numbers(init.eye_, 2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert numbers(init.ones_, 2).tolist() == [1, 1]
    assert numbers(lambda t: init.constant_(t, 3.5), 1).tolist() == [3.5]
    assert numbers(init.dirac_, 2, 2, 3).tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]]
    assert numbers(lambda t: init.dirac_(t, 2), 4, 2, 1).reshape(4, 2).tolist() == [[1, 0], [0, 1]] * 2
    sparse = numbers(lambda t: init.sparse_(t, 0.3), 10, 4)
    assert (sparse == 0).sum(0).tolist() == [3] * 4


def test_generators_make_fills_repeatable():
    def fill(t):
        return init.normal_(t, generator=weft.Generator().manual_seed(3))

    assert numbers(fill, 3).tolist() == numbers(fill, 3).tolist()


GAINS = [("linear", 1), ("tanh", 5 / 3), ("relu", math.sqrt(2)), ("selu", 0.75), ("leaky_relu", 1.4141428569978354)]


@pytest.mark.parametrize(("name", "gain"), GAINS)
def test_gains(name, gain):
    assert init.calculate_gain(name) == pytest.approx(gain)


REFUSED = [
    ("init.calculate_gain('x')", "Unsupported nonlinearity x"),
    ("init.calculate_gain('leaky_relu', 'x')", "negative_slope x not a valid number"),
    ("init.eye_(weft.ones(2))", "Only tensors with 2 dimensions are supported"),
    ("init.dirac_(weft.ones(2))", "Only tensors with 3, 4, or 5 dimensions are supported"),
    ("init.dirac_(weft.ones(3, 2, 2), 2)", "dim 0 must be divisible by groups"),
    (
        "init.xavier_uniform_(weft.ones(2))",
        "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
    ),
    (
        "init.kaiming_normal_(weft.ones(2, 2), mode='x')",
        r"Mode x not supported, please use one of \['fan_in', 'fan_out'\]",
    ),
    ("init.orthogonal_(weft.ones(2))", "Only tensors with 2 or more dimensions are supported"),
    ("init.sparse_(weft.ones(2), 0.1)", "Only tensors with 2 dimensions are supported"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_shapes_that_do_not_fit_are_refused(text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        eval(text)


def test_doubtful_fills_warn():
    with pytest.warns(UserWarning, match="^Initializing zero-element tensors is a no-op$"):
        init.kaiming_uniform_(weft.ones(0, 2))
    with pytest.warns(UserWarning, match="^mean is more than 2 std from"):
        init.trunc_normal_(weft.ones(2), 10.0)


@pytest.mark.parametrize(("mean", "expected"), [(10.0, 1.8795), (-9.0, -1.8627), (3.0, 1.4759)])
def test_a_range_in_the_tail_is_filled_near_the_mean(mean, expected):
    weight = weft.empty(50_000)
    with (
        pytest.warns(UserWarning, match="^mean is more than 2 std from") if abs(mean) > 4 else contextlib.nullcontext()
    ):
        init.trunc_normal_(weight, mean)
    assert abs(float(weight.mean()) - expected) < 0.01


def test_old_names_warn_and_work():
    with pytest.warns(
        FutureWarning, match=r"^`nn\.init\.constant` is now deprecated in favor of `nn\.init\.constant_`\.$"
    ):
        found = init.constant(weft.empty(2), 3.0)
    assert found.tolist() == [3, 3]
