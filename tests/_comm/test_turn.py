"""Whose turn it is."""

from __future__ import annotations

from queue import SimpleQueue

from weft._comm.turn import Turn


def test_one_at_a_time_and_the_next_is_told():
    turn, first, second = Turn(), SimpleQueue(), SimpleQueue()
    assert turn.take()
    assert not turn.take(first)
    assert not turn.take(second)
    assert turn.leave()
    assert (first.qsize(), second.qsize()) == (1, 0)
    assert turn.take(first)
    assert turn.leave()
    assert second.qsize() == 1
    assert turn.take(second)
    assert not turn.leave()


def test_who_leaves_with_its_bell_rung_passes_the_turn_on():
    turn, first, second = Turn(), SimpleQueue(), SimpleQueue()
    turn.take()
    turn.take(first)
    turn.take(second)
    turn.leave()
    assert not turn.forget(first)  # `second` is rung instead
    assert second.qsize() == 1
    assert turn.forget(second)  # nobody is left
    assert turn.take()


def test_who_waits_no_more_is_not_rung():
    turn, bell = Turn(), SimpleQueue()
    turn.take()
    turn.take(bell)
    assert not turn.forget(bell)
    assert not turn.leave()
    assert bell.empty()


def test_who_came_in_vain_without_a_bell_is_remembered():
    turn = Turn()
    turn.take()
    assert not turn.missed
    assert not turn.take()
    assert turn.missed
