"""Pipelines in real processes."""

from __future__ import annotations

import os
import sys

import pytest

from tests.distributed.processes import ended, start

BACKENDS = ["shm", "xla"] if "WEFT_DTENSOR_SEEDS" in os.environ else ["shm"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_trains_in_two_processes_as_in_one(backend, tmp_path):
    module = "tests.distributed.pipelining.processes"
    ranks = [start([sys.executable, "-m", module, backend, str(rank), "2", str(tmp_path / "job")]) for rank in range(2)]
    for code, output, errors in ended(ranks):
        assert code == 0, errors
        assert output.endswith("trained\n")  # what connects them may have said something
