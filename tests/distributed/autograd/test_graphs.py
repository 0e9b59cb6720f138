"""Distributed autograd equals autograd."""

from __future__ import annotations

import pytest

from tests.distributed.autograd import graphs
from tests.distributed.rpc import job


@pytest.mark.slow
@pytest.mark.parametrize("program", ["random", "many_at_once", pytest.param("soaked", marks=pytest.mark.soak)])
def test_graphs_cut_over_workers(program, tmp_path):
    job.run("tests.distributed.autograd.graphs", program, graphs.SIZE, tmp_path)


def test_graphs_cut_over_threads():
    job.run_in_threads(graphs.PROGRAMS, "random", graphs.SIZE)
