"""Every operator gives PyTorch's answers on the samples of PyTorch's operator database."""

from __future__ import annotations

import os

import pytest

from tests.oracle.coverage import keep
from tests.oracle.replay import check, report

samples = pytest.importorskip("tests.oracle.samples", reason="needs torch", exc_type=ImportError)

pytestmark = pytest.mark.oracle

_LIMIT = int(os.environ.get("WEFT_ORACLE_SAMPLES", "10")) or None  # of each dtype; 0 takes all
_ENTRIES = {name: entry for name, entry in samples.entries().items() if samples.targets_of(entry)}


@pytest.mark.parametrize("name", _ENTRIES)
def test_fresh_answers(name: str):
    results = list(check(samples.cases_of(_ENTRIES[name], _LIMIT)))
    keep(name, results)
    faults = report(results)
    assert not faults, faults
