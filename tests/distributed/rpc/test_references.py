"""References between processes."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job, references
from weft.distributed.rpc._pending_deletes import PendingDeletes, delete_forks
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

LONG = ("members", "failures", "thousands")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["sharing", "methods", "late", "unreadable", *(pytest.param(one, marks=pytest.mark.soak) for one in LONG)],
)
def test_references(program, tmp_path):
    job.run("tests.distributed.rpc.references", program, 3, tmp_path)


@pytest.mark.parametrize("program", ["sharing", "methods", "members", "failures"])
def test_references_between_threads(program):
    job.run_in_threads(references.PROGRAMS, program, 3)


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
