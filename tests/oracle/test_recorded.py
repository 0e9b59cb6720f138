"""Every operator gives the answers that PyTorch gave when they were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.cases import ANSWERS, load
from tests.oracle.replay import check, report


@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_answers(path: Path):
    faults = report(check(load(path)))
    assert not faults, faults
