"""Deadlines, by a clock that the test moves."""

from __future__ import annotations

import pytest

from weft._comm import deadline
from weft._comm.deadline import Deadline


@pytest.fixture
def clock(monkeypatch):
    """Set the time by `clock.now = …`."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(deadline, "monotonic", lambda: Clock.now)
    return Clock


def test_what_is_left_becomes_less_and_never_negative(clock):
    end = Deadline(2.0)
    assert (end.seconds, end.left(), end.expired) == (2.0, 2.0, False)
    clock.now += 1.5
    assert (end.seconds, end.left(), end.expired) == (2.0, 0.5, False)
    clock.now += 5
    assert (end.seconds, end.left(), end.expired) == (2.0, 0.0, True)


def test_the_moment_itself_is_too_late(clock):
    end = Deadline(2.0)
    clock.now += 2
    assert (end.left(), end.expired) == (0.0, True)


def test_none_is_never(clock):
    end = Deadline(None)
    clock.now += 1e9
    assert (end.seconds, end.left(), end.expired) == (None, None, False)


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_at_all_has_passed_at_once(clock, seconds):
    assert (Deadline(seconds).left(), Deadline(seconds).expired) == (0.0, True)
