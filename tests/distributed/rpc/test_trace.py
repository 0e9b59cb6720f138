"""Traces of remote calls."""

from __future__ import annotations

import signal

import pytest

from tests.distributed.processes import ended
from tests.distributed.rpc import job
from weft.distributed import rpc

MODULE = "tests.distributed.rpc.traced"


@pytest.mark.slow
def test_traces(tmp_path):
    job.run(MODULE, "lives", 3, tmp_path)


@pytest.mark.slow
def test_workers_die_in_traces(tmp_path):
    said = ended(job.launched(MODULE, "dies", 4, tmp_path))
    assert [said[rank][0] for rank in (1, 3)] == [-signal.SIGKILL] * 2, said
    for rank in (0, 2):
        assert said[rank][:2] == (0, f"{job.PASSED}\n"), said[rank][2]


def test_a_trace_needs_a_worker():
    with pytest.raises(RuntimeError, match=r"^RPC has not been initialized"), rpc.trace():
        pass
