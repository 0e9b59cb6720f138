"""References between processes."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job, references
from weft.distributed.rpc._pending_deletes import PendingDeletes, delete_forks
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future


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


def test_forks_that_become_known_later_do_not_rely_on_what_was_sent_before():
    """A note that waited for the owner would stay unsent beside a message that has left long ago."""
    told, owner, known = [], WorkerInfo("w1", 1), Future()
    deletes = PendingDeletes(lambda: None)
    now = Future()
    now.set_result(None)
    deletes.add(owner, (0, 1), (0, 2), now)
    deletes.add(owner, (0, 3), (0, 4), known)
    deletes.send(lambda *what, sending=None: told.append((*what, sending)), "a pipe")
    assert told == [(owner, delete_forks, [((0, 1), (0, 2))], "a pipe")]
    known.set_result(None)
    assert told[1:] == [(owner, delete_forks, [((0, 3), (0, 4))], None)]
