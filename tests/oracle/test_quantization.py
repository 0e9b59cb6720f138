"""The recorded answers of the programs of quantization are what PyTorch shows today."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
from tests.ao.graph_cases import CASES
from tests.ao.programs import Filler
from tests.ao.record import ALL, recorded
from tests.ao.test_programs import rounded

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", ALL)
def test_the_answers_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.nn.intrinsic.qat")
    pytest.importorskip("torch.ao.ns._numeric_suite")
    pytest.importorskip("torch.ao.ns._numeric_suite_fx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = ALL[name](torch)
    answers = recorded()[name]
    assert list(map(rounded, shown.texts)) == list(map(rounded, answers.texts))
    for key, numbers in answers.numbers.items():
        np.testing.assert_allclose(shown.numbers[key], numbers, rtol=1e-4, atol=1.001 * answers.steps[key] + 1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "only products"])
def test_a_state_dict_of_pytorchs_converted_model_is_loaded(name, tmp_path):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, _ = _converted(torch, name, 0)
        ours, x = _converted(weft, name, 1)
        torch.save(theirs.state_dict(), tmp_path / "state.pt")
        ours.load_state_dict(weft.load(tmp_path / "state.pt"))
        expected, got = theirs(torch.from_numpy(x.numpy())), ours(x)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (expected, got)), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), atol=0.05)


def _converted(library, name, seed):
    filler = Filler(library, seed)
    case = CASES[name](library, filler)
    filler.fill(case.model)
    return case.converted(library), case.inputs[0]
