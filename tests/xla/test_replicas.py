"""Two replicas: collectives within recorded programs, steps, and what passes between hosts."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.processes import Job
from tests.xla.cases import case
from tests.xla.host_cases import case as host_case


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    job = Job(
        lambda folder: [[sys.executable, "-m", "tests.xla.cases"]], 2, lambda: tmp_path_factory.mktemp("replicas")
    )
    try:
        yield job
        job.end()
    finally:
        job.kill()


@pytest.mark.parametrize("function", [*case, *host_case], ids=lambda function: function.__name__)
def test_two_replicas(job, function):
    job.run(function)
