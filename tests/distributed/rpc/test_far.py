"""Workers that do not share memory."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import far, job


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared(far.__name__, 2, tmp_path_factory)


@job.each(*far.case)
def test_long_tensors_by_tcp(case, workers):
    workers.run(case)


def test_a_lane_is_cut_off(tmp_path):
    job.run(far.__name__, "cut_off", 2, tmp_path)
