"""Two ranks of backend `xla`: collectives and the averages of replicas as parts of recorded programs."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.processes import Job
from tests.xla.ddp_cases import case


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    job = Job(
        lambda folder: [[sys.executable, "-m", "tests.xla.ddp_cases", str(folder), str(rank)] for rank in range(2)],
        2,
        lambda: tmp_path_factory.mktemp("ranks"),
    )
    try:
        yield job
        job.end()
    finally:
        job.kill()


@pytest.mark.parametrize("function", case, ids=lambda function: function.__name__)
def test_two_ranks(job, function):
    job.run(function)
