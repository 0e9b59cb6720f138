"""Sends and receives, in any order and of any size."""

from __future__ import annotations

import numpy as np
import pytest

from tests._comm import cases
from tests._comm.peers import results, run_threads
from weft._comm.deadline import Deadline
from weft.errors import ArgumentError, DistBackendError


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_messages_arrive_in_any_order(size, tmp_path):
    results(run_threads(size, cases.messages, tmp_path))


@pytest.mark.parametrize("early", [True, False])
def test_a_message_that_does_not_fit_is_told_and_dropped(early, tmp_path):
    def case(here):
        if here.rank == 1:
            for array in (np.arange(6.0), np.arange(2)):
                here.messages.wait(here.messages.send(array, 0), here.deadline)
            here.collectives.barrier(here.deadline)
            return
        if not early:
            here.collectives.barrier(here.deadline)
        out = np.zeros(4, np.float32)
        with pytest.raises(
            DistBackendError,
            match=r"^receive from rank 1 with tag 0: rank 1 sent 48 bytes of float64, expected 16 bytes of float32$",
        ):
            here.messages.wait(here.messages.receive(out, 1), here.deadline)
        assert not out.any()
        here.messages.wait(here.messages.receive(after := np.zeros(2, np.int64), 1), here.deadline)
        cases.same(after, np.arange(2))
        if early:
            here.collectives.barrier(here.deadline)

    results(run_threads(2, case, tmp_path))


def test_a_message_that_never_comes_is_named_at_the_deadline(tmp_path):
    def case(here):
        if here.rank == 0:
            here.messages.wait(here.messages.receive(np.zeros(2), 1, tag=3), Deadline(0.05))

    first, _ = run_threads(2, case, tmp_path, ranks=(4, 8))
    assert str(first).startswith("receive from rank 8 with tag 3, rank 4: Timed out waiting ")
    assert str(first).endswith("ms for rank 8; see what holds it up, or allow more time")


def test_bad_arguments_are_refused(tmp_path):
    def case(here):
        fixed = np.zeros(2)
        fixed.flags.writeable = False
        with pytest.raises(ArgumentError, match=r"^3 is not a rank of a group of 1$"):
            here.messages.send(fixed, 3)
        with pytest.raises(ArgumentError, match=r"^the array to write into is read-only$"):
            here.messages.receive(fixed, 0)
        with pytest.raises(ArgumentError, match=r"^arrays must be contiguous"):
            here.messages.send(np.zeros(4)[::2], 0)

    results(run_threads(1, case, tmp_path))
