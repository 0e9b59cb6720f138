"""Rounds of collectives of workers, without workers."""

from __future__ import annotations

import pytest

from weft.distributed.rpc._worker_collectives import _Rounds

NAMES = ("w0", "w1", "w2")


def test_rounds_are_counted_for_each_set_of_names():
    rounds = _Rounds()
    assert [rounds.next_number(NAMES) for _ in range(3)] == [0, 1, 2]
    assert rounds.next_number(("w0", "w1")) == 0


def test_a_round_is_done_when_the_last_object_comes():
    rounds = _Rounds()
    futures = [rounds.contribute(NAMES, 0, name, name.upper()) for name in ("w2", "w0")]
    assert not any(future.done() for future in futures)
    futures.append(rounds.contribute(NAMES, 0, "w1", "W1"))
    assert [future.value() for future in futures] == [{"w0": "W0", "w1": "W1", "w2": "W2"}] * 3


def test_rounds_that_are_open_together_do_not_meet():
    """A fast worker is in the next round while a slow one has not come to this one."""
    rounds = _Rounds()
    first, second = (rounds.contribute(("w0", "w1"), number, "w0", number) for number in (0, 1))
    other = rounds.contribute(("w0", "w2"), 0, "w0", "other")
    rounds.contribute(("w0", "w1"), 1, "w1", 11)
    assert second.value() == {"w0": 1, "w1": 11}
    assert not first.done()
    assert not other.done()
    rounds.contribute(("w0", "w1"), 0, "w1", 10)
    assert first.value() == {"w0": 0, "w1": 10}


def test_a_round_that_is_abandoned_tells_who_has_not_come():
    rounds = _Rounds()
    waiting = rounds.contribute(NAMES, 0, "w1", 1)
    rounds.abandon(NAMES, 0, "w1")
    with pytest.raises(RuntimeError, match=r"^_all_gather: w1 has waited in vain for w0, w2$"):
        waiting.value()


def test_a_round_is_abandoned_once_and_not_after_its_end():
    rounds = _Rounds()
    done = rounds.contribute(("w0",), 0, "w0", 1)
    rounds.abandon(("w0",), 0, "w0")
    assert done.value() == {"w0": 1}
    waiting = rounds.contribute(NAMES, 1, "w0", 1)
    for name in ("w0", "w2"):
        rounds.abandon(NAMES, 1, name)
    with pytest.raises(RuntimeError, match="w0 has waited in vain"):
        waiting.value()


def test_who_comes_after_a_round_was_abandoned_waits_until_its_own_timeout():
    rounds = _Rounds()
    rounds.contribute(NAMES, 0, "w0", 1)
    rounds.abandon(NAMES, 0, "w0")
    late = rounds.contribute(NAMES, 0, "w1", 1)
    assert not late.done()
    rounds.abandon(NAMES, 0, "w1")
    with pytest.raises(RuntimeError, match="w1 has waited in vain for w0, w2"):
        late.value()
