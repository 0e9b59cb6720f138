"""What users get wrong with modules, and what they are told: PyTorch's exceptions and texts."""

from __future__ import annotations

import builtins
import warnings

import pytest

import weft
from tests.nn.refusals import REFUSALS, described, evaluated
from weft.errors import ElementError


@pytest.mark.parametrize("call", REFUSALS)
def test_a_call_is_refused_in_pytorchs_words(call):
    kind, text = REFUSALS[call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(getattr(builtins, kind)) as raised:
            evaluated(call, weft).tolist()
    found = described(raised.value)[1]
    if isinstance(raised.value, ElementError):  # says which call it was, too
        assert text in found
    else:
        assert found == text
