"""Distributed autograd equals autograd."""

from __future__ import annotations

import pytest

from tests.distributed.autograd import graphs
from tests.distributed.rpc import job


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.autograd.graphs", graphs.SIZE, tmp_path_factory)


@pytest.mark.slow
@job.each(*graphs.case, *graphs.case_of_processes, long=graphs.long_case)
def test_graphs_cut_over_workers(case, workers):
    workers.run(case)


@job.each(*graphs.case)
def test_graphs_cut_over_threads(case):
    job.run_in_threads(case, graphs.SIZE)
