"""Profiles of programs that call other workers."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job, profiled


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.rpc.profiled", 3, tmp_path_factory)


@job.each(*profiled.case)
def test_profiles(case, workers):
    workers.run(case)
