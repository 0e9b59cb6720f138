"""The reader lock."""

from __future__ import annotations

from queue import SimpleQueue

from weft._comm.transport.reader_lock import ReaderLock


def test_one_at_a_time_and_the_next_is_told():
    lock, first, second = ReaderLock(), SimpleQueue(), SimpleQueue()
    assert lock.acquire()
    assert not lock.acquire(first)
    assert not lock.acquire(second)
    assert lock.release()
    assert (first.qsize(), second.qsize()) == (1, 0)
    assert lock.acquire(first)
    assert lock.release()
    assert second.qsize() == 1
    assert lock.acquire(second)
    assert not lock.release()


def test_who_leaves_though_it_was_woken_passes_the_lock_on():
    lock, first, second = ReaderLock(), SimpleQueue(), SimpleQueue()
    lock.acquire()
    lock.acquire(first)
    lock.acquire(second)
    lock.release()
    assert not lock.withdraw(first)  # `second` is woken instead
    assert second.qsize() == 1
    assert lock.withdraw(second)  # nobody is left
    assert lock.acquire()


def test_who_waits_no_more_is_not_woken():
    lock, waiter = ReaderLock(), SimpleQueue()
    lock.acquire()
    lock.acquire(waiter)
    assert not lock.withdraw(waiter)
    assert not lock.release()
    assert waiter.empty()


def test_who_came_in_vain_without_a_waiter_is_remembered():
    lock = ReaderLock()
    lock.acquire()
    assert not lock.missed
    assert not lock.acquire()
    assert lock.missed
