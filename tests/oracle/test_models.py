"""Whole models follow PyTorch's loss from PyTorch's weights, over 20 steps."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.oracle.models import ANSWERS, MODELS, TOLERANCE, initial_weights, losses


def _recorded(name: str, dtype: str):
    with np.load(ANSWERS / f"{name}.npz") as file:
        weights = {key.removeprefix("weight."): file[key] for key in file.files if key.startswith("weight.")}
        return weights, file[f"loss.{dtype}"]


_LARGE = {"gpt", "lstm", "resnet20", "transformer"}  # they take seconds to compile


def _marks(name: str, dtype: str) -> list[pytest.MarkDecorator]:
    quick = name not in ("resnet20", "transformer") and (dtype == "float64" or name == "mlp")
    return [] if quick else [pytest.mark.soak]


_CASES = [
    pytest.param(name, dtype, compiled, marks=_marks(name, dtype))
    for name in MODELS
    for dtype in TOLERANCE
    for compiled in (False, True)
    if name not in _LARGE or compiled is (dtype == "float64")
]


@pytest.mark.parametrize(("name", "dtype", "compiled"), _CASES)
def test_follows_the_recorded_curve(name: str, dtype: str, compiled: bool):
    weights, expected = _recorded(name, dtype)
    found = losses(weft, name, dtype, weights, compiled=compiled)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # what PyTorch says of every encoder that norms first
@pytest.mark.parametrize("name", MODELS)
def test_the_recorded_curve_is_pytorchs(name: str):
    torch = pytest.importorskip("torch")
    weights, expected = _recorded(name, "float64")
    np.testing.assert_allclose(losses(torch, name, "float64", weights), expected, rtol=1e-12)
    for key, value in initial_weights(torch, name).items():
        np.testing.assert_array_equal(value, weights[key], err_msg=key)
