"""The recorded answers of the programs of quantization are what PyTorch shows today."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.ao.programs import PROGRAMS
from tests.ao.record import recorded
from tests.ao.test_programs import rounded

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answers_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.nn.intrinsic.qat")
    pytest.importorskip("torch.ao.ns._numeric_suite")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = PROGRAMS[name](torch)
    answers = recorded()[name]
    assert list(map(rounded, shown.texts)) == list(map(rounded, answers.texts))
    for key, numbers in answers.numbers.items():
        np.testing.assert_allclose(shown.numbers[key], numbers, rtol=1e-4, atol=1.001 * answers.steps[key] + 1e-5)
