"""Replicas within contexts of distributed autograd."""

from __future__ import annotations

import pytest

from tests.distributed.autograd import replicas
from tests.distributed.rpc import job


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.autograd.replicas", 3, tmp_path_factory)


@pytest.mark.slow
@job.each(*replicas.case)
def test_replicas_in_contexts(case, workers):
    workers.run(case)
