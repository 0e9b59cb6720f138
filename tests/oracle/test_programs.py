"""Random programs do what they do in PyTorch, and the same in every mode: numbers, gradients, aliases and errors."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from tests.oracle.random_programs import judge
from tests.oracle.random_programs.source import text
from tests.oracle.random_programs.writer import written

pytestmark = pytest.mark.oracle

COUNT = int(os.environ.get("WEFT_ORACLE_PROGRAMS", "200"))
BLOCK = 10  # programs of one test
MODES = {"eagerly": 8, "with_reads": 4, "compiled": 4}  # every so-manieth program


def examine(seeds: range, name: str) -> None:
    """Fail with the least program among some that `judge` has something against."""
    examination = getattr(judge, name)
    for seed in seeds:
        lines = written(seed)
        if examination(lines):
            lines, shown = judge.smallest(lines, examination)
            pytest.fail(f"Program {seed}, {name}:\n\n{text(lines)}\n\n{shown.words}", pytrace=False)


@pytest.mark.parametrize("start", range(0, COUNT, BLOCK))
def test_programs_do_as_in_pytorch(start: int):
    examine(range(start, min(start + BLOCK, COUNT)), "against_pytorch")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", range(0, COUNT, 4 * BLOCK))
def test_programs_do_the_same_in_every_mode(mode: str, start: int):
    examine(range(start, min(start + 4 * BLOCK, COUNT), MODES[mode]), mode)
