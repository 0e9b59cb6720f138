"""References between processes."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job, references


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.rpc.references", 3, tmp_path_factory)


@pytest.mark.slow
@job.each(*references.case, *references.case_of_processes, long=references.long_case)
def test_between_processes(case, workers):
    workers.run(case)


@job.each(*references.case)
def test_between_threads(case):
    job.run_in_threads(case, 3)
