"""Contexts, passes, remote modules and distributed optimizers in jobs of three workers."""

from __future__ import annotations

import signal

import pytest

from tests.distributed.autograd import uses
from tests.distributed.processes import ended
from tests.distributed.rpc import job

_MODULE = "tests.distributed.autograd.uses"


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared(_MODULE, 3, tmp_path_factory)


@pytest.mark.slow
@job.each(*uses.case)
def test_between_processes(case, workers):
    workers.run(case)


@job.each(*uses.case)
def test_between_threads(case):
    job.run_in_threads(case, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "lost"), [("failures", 2), ("abandoned", 1)])
def test_what_fails_is_cleaned_up(program, lost, tmp_path):
    said = ended(job.launched(_MODULE, program, 3, tmp_path))
    assert said[lost][0] == -signal.SIGKILL
    assert said[0][:2] == (0, f"{job.PASSED}\n"), said[0][2]
    assert f"shutdown: worker w{lost} ended without completing shutdown(); the others are done" in said[3 - lost][2]
