"""Schedules as data: complete, free of deadlock, and as short as the literature says."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weft.distributed.pipelining import _orders as orders
from weft.distributed.pipelining._actions import COMPUTATIONS, Action, Kind, action_of, read_orders, write_orders
from weft.distributed.pipelining._plan import check, computations_of, forwards_of, timetable, with_messages

ONE_STAGE = [orders.gpipe, orders.one_forward_one_backward]
SEVERAL = [orders.looped_bfs, orders.interleaved, orders.interleaved_zero_bubble]
ALL = [(order, 1) for order in ONE_STAGE + SEVERAL] + [(order, 3) for order in SEVERAL] + [(orders.zero_bubble_v, 2)]


def plan_of(order, ranks, local, microbatches):
    try:
        return with_messages(order(ranks, local, microbatches))
    except ValueError:
        assume(False)


@given(st.sampled_from(ALL), st.integers(1, 6), st.integers(1, 17))
def test_every_schedule_comes_to_its_end(case, ranks, microbatches):
    order, local = case
    plan = plan_of(order, ranks, local, microbatches)
    check(plan, microbatches, training=True)
    check(with_messages(forwards_of(plan)), microbatches, training=False)


@given(st.sampled_from(ALL), st.integers(1, 4), st.integers(1, 9), st.randoms())
def test_a_schedule_without_one_action_is_refused(case, ranks, microbatches, chance):
    order, local = case
    plan = plan_of(order, ranks, local, microbatches)
    row = chance.choice(plan)
    del row[chance.randrange(len(row))]
    with pytest.raises(ValueError, match=r"^schedule: "):
        check(plan, microbatches, training=True)


@given(st.integers(1, 4), st.integers(1, 8), st.randoms())
def test_shuffled_actions_are_refused_or_come_to_their_end(ranks, microbatches, chance):
    plan = with_messages(orders.gpipe(ranks, 1, microbatches))
    for row in plan:
        chance.shuffle(row)
    with suppress(ValueError):
        check(plan, microbatches, training=True)
        assert len(timetable(plan)[0]) >= 2 * (microbatches + ranks - 1)


@given(st.integers(1, 8), st.integers(1, 24))
def test_gpipe_and_1f1b_take_the_time_of_the_literature(ranks, microbatches):
    for order in ONE_STAGE:
        table = timetable(plan_of(order, ranks, 1, microbatches))
        assert len(table[0]) == 2 * (microbatches + ranks - 1)


def idle_steps(order, ranks, local, microbatches):
    return sum(step is None for row in timetable(plan_of(order, ranks, local, microbatches)) for step in row)


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (4, 16), (8, 16)])
def test_interleaving_and_split_backwards_shorten_idle_times(ranks, microbatches):
    assert idle_steps(orders.interleaved, ranks, 2, microbatches) <= idle_steps(
        orders.looped_bfs, ranks, 2, microbatches
    )
    assert idle_steps(orders.interleaved, ranks, 2, microbatches) <= 2 * ranks * (ranks - 1)
    assert idle_steps(orders.zero_bubble_v, ranks, 2, microbatches) <= ranks * (ranks - 1)


@given(st.integers(1, 6), st.integers(1, 12))
def test_1f1b_keeps_few_microbatches(stages, microbatches):
    assume(microbatches >= stages)
    for stage, actions in enumerate(orders.one_forward_one_backward(stages, 1, microbatches)):
        alive = [0]
        for action in actions:
            alive.append(alive[-1] + (1 if action.computation_type is Kind.FORWARD else -1))
        assert max(alive) == stages - stage


def test_texts_and_files(tmp_path):
    action = Action(12, Kind.RECV_B, 3)
    assert str(action) == "12RECV_B3"
    assert action_of(" 12RECV_B3 ") == action
    with pytest.raises(RuntimeError, match=r"^Invalid action string: 2X0, should be formatted as "):
        action_of("2X0")
    plan = with_messages(orders.interleaved_zero_bubble(2, 2, 4))
    write_orders(plan, tmp_path / "plan.csv")
    assert read_orders(tmp_path / "plan.csv") == plan
    assert {action.computation_type for row in computations_of(plan) for action in row} <= set(COMPUTATIONS)


BAD = [
    ([["0F0", "0B0", "0F0"]], "0F0 is there more than once"),
    ([["0F0"]], "stage 0 needs a forward for microbatch 0, .*, but there is 0F0"),
    ([["0F0"], ["0B0"]], "0B0 is on rank 1, but the stage is on rank 0"),
    ([["0F0", "0B0", "2F0", "2B0"]], r"there must be actions of the stages 0, 1, …, but they are of \[0, 2\]"),
    ([["0F1", "0B1"]], "0F1 is there, but there are 1 microbatches"),
    ([["0F0", "0I0"]], r"stage 0 needs a forward for microbatch 0, .*, but there is 0F0, 0I0"),
    ([["0B0", "0F0"]], r"ranks would wait for ever, at these actions by rank: \{0: 0B0\}"),
    ([["0F0", "0B0"], ["1F0", "1B0"]], r"ranks would wait for ever, at these actions by rank: \{0: 0B0, 1: 1F0\}"),
]


@pytest.mark.parametrize(("rows", "text"), BAD)
def test_bad_schedules(rows, text):
    with pytest.raises(ValueError, match=f"^schedule: {text}"):
        check([[action_of(cell) for cell in row] for row in rows], 1, training=True)


def test_numbers_that_schedules_do_not_allow():
    with pytest.raises(
        ValueError, match=r"^Number of microbatches \(3\) must be greater than or equal to the number of"
    ):
        orders.one_forward_one_backward(4, 1, 3)
    with pytest.raises(ValueError, match=r"multiple of the number of rounds \(2\), but got 5\.$"):
        orders.interleaved(2, 2, 5)
    with pytest.raises(ValueError, match=r"^ZBV requires exactly 2 stages per rank, but got 3\.$"):
        orders.zero_bubble_v(2, 3, 4)


def test_random_orders_of_backwards_are_schedules():
    """A schedule of one's own: a function from the three numbers to the actions."""
    chance = random.Random(0)

    def order(ranks, local, microbatches):
        rows = orders.gpipe(ranks, local, microbatches)
        return [row[:microbatches] + chance.sample(row[microbatches:], microbatches) for row in rows]

    check(with_messages(order(3, 1, 5)), 5, training=True)
