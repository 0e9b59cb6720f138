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


LONG = {"batch_norm_over_all_ranks_is_captured", "a_captured_step_trains_as_averages_that_are_exchanged_at_once"}


@pytest.mark.parametrize(
    "function",
    [pytest.param(one, marks=pytest.mark.soak if one.__name__ in LONG else (), id=one.__name__) for one in case],
)
def test_two_ranks(job, function):
    job.run(function)
