"""What PyTorch's operator database calls wrong is refused as PyTorch refuses it."""

from __future__ import annotations

import pytest

from tests.oracle.known import reason_for_refusal

error_inputs = pytest.importorskip("tests.oracle.error_inputs", reason="needs torch", exc_type=ImportError)

pytestmark = pytest.mark.oracle

_ENTRIES = error_inputs.entries()


@pytest.mark.parametrize("name", _ENTRIES)
def test_wrong_calls_are_refused_alike(name: str):
    faults = [fault for fault in error_inputs.faults_of(_ENTRIES[name]) if not reason_for_refusal(name, fault)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("call", error_inputs.REFUSALS)
def test_recorded_answers_are_pytorchs(call: str):
    assert error_inputs.answer(call) == error_inputs.REFUSALS[call]
