"""Every operator gives the answers that PyTorch gave when they were recorded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.oracle.cases import ANSWERS, Case, load
from tests.oracle.replay import check, report

_PATHS = sorted(ANSWERS.glob("*.npz"))
_FEW = 4  # cases of an operator; compiling is most of the work, and grows with them


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_recorded_answers(path: Path):
    faults = report(check(_spread(load(path))))
    assert not faults, faults


@pytest.mark.soak
@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_all_recorded_answers(path: Path):
    faults = report(check(load(path)))
    assert not faults, faults


def _spread(cases: Iterable[Case]) -> list[Case]:
    """A few of them, from the first to the last."""
    listed = list(cases)
    return listed[:: max(1, -(-len(listed) // _FEW))]
