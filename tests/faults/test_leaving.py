"""Workers that leave while references are still being made, a thousand times."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.processes import ended, start

ROUNDS = 1000


@pytest.mark.parametrize("size", [2, 4])
def test_no_value_is_lost_and_nobody_waits_for_ever(size, tmp_path):
    command = [sys.executable, "-m", "tests.faults.nested"]
    workers = [start([*command, str(rank), str(size), str(ROUNDS), str(tmp_path)]) for rank in range(size)]
    assert ended(workers, seconds=1800) == [(0, "done\n", "")] * size
