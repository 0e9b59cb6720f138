"""Random programs do what they do in PyTorch, and the same in every mode: numbers, gradients, aliases and errors."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.oracle.random_programs import judge
from tests.oracle.random_programs.source import text
from tests.oracle.random_programs.writer import written

pytestmark = pytest.mark.oracle

COUNTS = {"ci": 200, "soak": 10_000}  # programs, by profile
STEPS = {
    "against_pytorch": 1,
    "with_reads": 5,
    "compiled": 5,
    "eagerly": 20,
    "in_tiers": 10,
}  # every so-manieth is examined so
BLOCK = 10  # examinations in one test


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every examination of every program that it is for, some in a test."""
    count = COUNTS[metafunc.config.getoption("--hypothesis-profile") or "ci"]
    cases = [(name, at) for name, step in STEPS.items() for at in range(0, count, BLOCK * step)]
    metafunc.parametrize(("examination", "start"), cases)


def test_programs(examination: str, start: int):
    examine, step = getattr(judge, examination), STEPS[examination]
    for seed in range(start, start + BLOCK * step, step):
        lines = written(seed)
        if examine(lines):
            lines, shown = judge.smallest(lines, examine)
            pytest.fail(f"Program {seed}, {examination}:\n\n{text(lines)}\n\n{shown.words}", pytrace=False)
