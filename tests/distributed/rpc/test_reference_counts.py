"""The bookkeeping of references and of deleted forks, without sockets or workers."""

from __future__ import annotations

import threading

import pytest

from weft.distributed.rpc._call import NEVER
from weft.distributed.rpc._pending_deletes import _TOGETHER, PendingDeletes, delete_forks
from weft.distributed.rpc._references import GloballyUniqueId, References
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future

ME, USER, OTHER = (0, 0), (1, 0), (2, 0)  # a worker's number and incarnation
NUMBER, FORK = (1, 7), (1, 8)  # of a value that worker 1 creates here, and of its fork
NOTHING = {"num_owner_rrefs": 0, "num_forks": 0, "num_parent_rrefs": 0}


@pytest.fixture
def references():
    return References(ME)


# --- numbers ---


def test_numbers_are_given_once(references):
    first, second = references.number(), references.number()
    assert (first.pair, second.pair) == ((0, 0), (0, 1))
    assert repr(second) == "GloballyUniqueId(created_on=0, local_id=1)"


def test_a_number_tells_the_incarnation_that_gave_it():
    assert References((3, 2)).number().creator == (3, 2)
    assert References((3, 2)).number() != References((3, 1)).number()


# --- the owner ---


def test_a_value_is_kept_from_its_creation_to_the_end_of_its_last_fork(references):
    references.add_fork(NUMBER, FORK, USER)
    references.create(NUMBER)
    references.add_fork(NUMBER, (1, 9), OTHER)
    references.delete_fork(NUMBER, FORK)
    assert references.figures() == {"num_owner_rrefs": 1, "num_forks": 1, "num_parent_rrefs": 0}
    references.delete_fork(NUMBER, (1, 9))
    assert references.figures() == NOTHING


def test_a_fork_may_be_known_before_the_value_is_created(references):
    """The message of another worker was faster than the creator's."""
    early = references.add_fork(NUMBER, (1, 9), OTHER)
    references.delete_fork(NUMBER, (1, 9))
    assert references.create(NUMBER) is early
    del early
    assert references.figures() == NOTHING


def test_a_value_that_is_not_created_yet_is_kept_without_forks(references):
    references.owned(NUMBER)
    assert references.figures()["num_owner_rrefs"] == 1
    references.create(NUMBER)
    assert references.figures() == NOTHING


def test_a_reference_of_the_owner_keeps_its_value(references):
    owned = references.create(NUMBER)
    assert references.owned(NUMBER) is owned
    assert references.figures()["num_owner_rrefs"] == 1
    del owned
    assert references.figures() == NOTHING


def test_a_fork_is_deleted_once(references):
    references.add_fork(NUMBER, FORK, USER)
    references.add_fork(NUMBER, (1, 9), USER)
    references.create(NUMBER)
    for _ in range(2):
        references.delete_fork(NUMBER, FORK)
    assert references.figures()["num_forks"] == 1
    references.delete_fork((5, 5), FORK)  # of no value
    assert references.figures()["num_owner_rrefs"] == 1


# --- users ---


class Parent:
    pass


def test_a_parent_is_kept_until_the_owner_knows_of_its_child(references):
    references.keep_parent((0, 1), Parent(), USER)
    assert references.figures()["num_parent_rrefs"] == 1
    references.child_known((0, 1))
    references.child_known((0, 1))  # to say so twice does nothing more
    assert references.figures() == NOTHING


def test_a_parent_that_goes_with_its_child_may_use_the_references(references):
    """It is freed outside of the lock."""

    class Asking:
        def __del__(self):
            seen.append(references.figures())

    seen = []
    references.keep_parent((0, 1), Asking(), USER)
    references.child_known((0, 1))
    references.keep_parent((0, 2), Asking(), USER)
    references.lost(USER)
    assert seen == [NOTHING] * 2


def test_waiting_for_children_ends_with_the_last_one_or_in_time(references):
    references.wait_for_children(0)
    references.keep_parent((0, 1), Parent(), USER)
    references.wait_for_children(0)
    over = threading.Event()
    thread = threading.Thread(target=lambda: (references.wait_for_children(60), over.set()))
    thread.start()
    references.child_known((0, 1))
    thread.join(60)
    assert over.is_set(), "nobody has woken who waits"


# --- workers that are lost ---


def test_a_lost_worker_holds_nothing_any_more(references):
    references.add_fork(NUMBER, FORK, USER)
    references.add_fork(NUMBER, (2, 9), OTHER)
    references.create(NUMBER)
    references.keep_parent((0, 1), Parent(), USER)
    references.keep_parent((0, 2), Parent(), OTHER)
    references.lost(USER)
    assert references.figures() == {"num_owner_rrefs": 1, "num_forks": 1, "num_parent_rrefs": 1}
    references.lost(OTHER)
    assert references.figures() == NOTHING


def test_a_value_that_a_lost_worker_was_to_create_fails(references):
    other = references.add_fork(NUMBER, (2, 9), OTHER)
    references.lost(USER)
    with pytest.raises(RuntimeError, match=r"^worker 1 was lost before it created the value of GloballyUniqueId\("):
        other.value.value()
    del other
    references.delete_fork(NUMBER, (2, 9))
    assert references.figures() == NOTHING


def test_a_value_whose_request_has_arrived_is_computed_though_its_creator_is_lost(references):
    owned = references.create(NUMBER)
    references.lost(USER)
    assert not owned.value.done()


def test_what_a_dead_worker_was_to_create_fails_and_a_new_one_of_its_number_is_another():
    references = References((0, 0))
    old, new = GloballyUniqueId(1, 0), GloballyUniqueId(1, (1 << 48))
    waiting, fresh = references.owned(old), references.owned(new)
    references.add_fork(new, GloballyUniqueId(1, (1 << 48) + 1), (1, 1))
    references.lost((1, 0))
    with pytest.raises(
        RuntimeError, match=r"worker 1 was lost before it created the value of GloballyUniqueId\(created"
    ):
        waiting.value.wait()
    assert not fresh.value.done()
    assert references.figures()["num_forks"] == 1


# --- deleted forks ---


OWNER = WorkerInfo("w1", 1)


class Told(list):
    """What owners were told."""

    def __call__(self, owner, function, forks, sending=None):
        assert function is delete_forks
        self.append((owner, forks, sending))


def known():
    done = Future()
    done.set_result(None)
    return done


def test_deletes_wake_who_sends_them_once():
    wakes = []
    deletes = PendingDeletes(lambda: wakes.append(deletes.due))
    assert deletes.due == NEVER
    assert not deletes
    for local in range(3):
        deletes.add(OWNER, (0, local), (0, 10 + local), known())
    assert deletes
    assert wakes == [deletes.due]
    assert deletes.due < NEVER


def test_deletes_for_one_owner_go_together():
    deletes, told = PendingDeletes(lambda: None), Told()
    other = WorkerInfo("w2", 2)
    for local, owner in enumerate((OWNER, other, OWNER)):
        deletes.add(owner, (0, local), (0, 10 + local), known())
    deletes.send(told, "a pipe")
    assert told == [
        (OWNER, [((0, 0), (0, 10)), ((0, 2), (0, 12))], "a pipe"),
        (other, [((0, 1), (0, 11))], "a pipe"),
    ]
    assert not deletes
    assert deletes.due == NEVER
    deletes.send(told)
    assert len(told) == 2  # nothing is told twice


def test_a_message_names_a_limited_number_of_forks():
    deletes, told = PendingDeletes(lambda: None), Told()
    for local in range(_TOGETHER + 1):
        deletes.add(OWNER, (0, local), (1, local), known())
    deletes.send(told)
    assert [len(forks) for _, forks, _ in told] == [_TOGETHER, 1]


def test_forks_that_become_known_later_do_not_rely_on_what_was_sent_before():
    """A note that waited for the owner would stay unsent beside a message that has left long ago."""
    deletes, told, later = PendingDeletes(lambda: None), Told(), Future()
    deletes.add(OWNER, (0, 1), (0, 2), known())
    deletes.add(OWNER, (0, 3), (0, 4), later)
    deletes.send(told, "a pipe")
    assert told == [(OWNER, [((0, 1), (0, 2))], "a pipe")]
    later.set_result(None)
    assert told[1:] == [(OWNER, [((0, 3), (0, 4))], None)]


def test_numbers_travel_as_plain_pairs():
    deletes, told = PendingDeletes(lambda: None), Told()
    deletes.add(OWNER, GloballyUniqueId(0, 1), GloballyUniqueId(0, 2), known())
    deletes.send(told)
    ((_, [pair], _),) = told
    assert [type(number) for number in pair] == [tuple, tuple]
