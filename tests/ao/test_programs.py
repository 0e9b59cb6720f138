"""PyTorch's tutorials of quantization show what they show under PyTorch: structures, texts, and numbers to one step."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import weft
from tests.ao.programs import Shown
from tests.ao.record import ALL, recorded

_NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")


def rounded(text: str) -> str:
    """A text with its numbers to five digits: PyTorch prints scales, whose last digits depend on orders of sums."""
    return _NUMBER.sub(lambda match: f"{float(match.group()):.5g}", text)


@pytest.fixture(scope="module")
def answers() -> dict[str, Shown]:
    return recorded()


@pytest.mark.parametrize("name", ALL)
def test_a_program_shows_what_it_does_under_pytorch(name, answers):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please use quant_min and quant_max")
        shown = ALL[name](weft)
    expected = answers[name]
    assert list(map(rounded, shown.texts)) == list(map(rounded, expected.texts))
    assert shown.numbers.keys() == expected.numbers.keys()
    for key, numbers in expected.numbers.items():
        step = expected.steps[key]
        np.testing.assert_allclose(shown.numbers[key], numbers, rtol=1e-4, atol=1.001 * step + 1e-5, err_msg=key)
        exact = np.isclose(shown.numbers[key], numbers, rtol=1e-4, atol=1e-5).mean()
        assert exact > 0.9 or not step, f"{key}: only {exact:.0%} are on the same level"
