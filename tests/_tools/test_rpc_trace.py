"""Traces of remote calls."""

from __future__ import annotations

import signal

import pytest

from tests._tools import traced
from tests.distributed.processes import ended
from tests.distributed.rpc import job
from weft.distributed import rpc

MODULE = "tests._tools.traced"


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared(MODULE, 3, tmp_path_factory)


@pytest.mark.slow
@job.each(*traced.case)
def test_traces(case, workers):
    workers.run(case)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "size"), [("lost", 4), ("opener", 3)])
def test_a_worker_dies_in_a_trace(program, size, tmp_path):
    said = ended(job.launched(MODULE, program, size, tmp_path))
    assert said.pop(1)[0] == -signal.SIGKILL
    for code, output, errors in said:
        assert (code, output) == (0, f"{job.PASSED}\n"), errors


def test_a_trace_needs_a_worker():
    with pytest.raises(RuntimeError, match=r"^RPC has not been initialized"), rpc.trace():
        pass
