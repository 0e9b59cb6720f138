"""Distributed tensors in real processes."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.processes import ended, start
from tests.distributed.tensor.threads import WHOLE


@pytest.mark.parametrize("backend", ["shm", "xla"] if WHOLE else ["shm"])
@pytest.mark.soak
def test_a_model_trains_in_two_processes_as_in_one(backend, tmp_path):
    module = "tests.distributed.tensor.processes"
    ranks = [start([sys.executable, "-m", module, backend, str(rank), "2", str(tmp_path / "job")]) for rank in range(2)]
    for code, output, errors in ended(ranks):
        assert code == 0, errors
        assert output.endswith("trained\n")  # what connects them may have said something
