"""Memory lent between processes; here, both ends are in one."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from weft._comm.shared_memory.loans import Borrower, FrozenBytes, Lender
from weft._comm.transport.wire import pack
from weft.errors import DistNetworkError

LONG, SHORT = 1 << 21, 1 << 17


def data(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_what_is_lent_comes_whole(size):
    lender, borrower, returned = Lender(), Borrower(), []
    sent = data(size)
    got = borrower.borrow(lender.lend("peer", sent.data), returned.append)
    assert (got == sent).all()
    assert returned == ([1] if size == SHORT else [])  # what is short is copied


def test_memory_is_used_again_only_when_nothing_uses_it():
    lender, borrower, returned = Lender(), Borrower(), []
    first = borrower.borrow(lender.lend("peer", data(LONG, 1).data), returned.append)
    view = np.ndarray(LONG // 4, np.float32, first)[5:]
    second = borrower.borrow(lender.lend("peer", data(LONG, 2).data), returned.append)
    del first
    gc.collect()
    assert returned == []  # the view still needs it
    assert (second == data(LONG, 2)).all()
    del view
    gc.collect()
    assert returned == [1]
    lender.take_back("peer", 1)
    third = borrower.borrow(lender.lend("peer", data(LONG, 3).data), returned.append)
    assert (third == data(LONG, 3)).all()
    assert (second == data(LONG, 2)).all()
    assert len(borrower._regions) == 2


def test_memory_that_its_lender_gives_up_is_given_up_by_borrowers():
    lender, borrower = Lender(), Borrower()
    for seed in range(5):
        borrower.borrow(lender.lend("peer", data(LONG, seed).data), lambda number: None)
    assert len(borrower._regions) == 5
    lender.forget("peer")
    kept = borrower.borrow(lender.lend("another", data(LONG, 7).data), lambda number: None)
    assert len(borrower._regions) == 1
    assert (kept == data(LONG, 7)).all()


def lasting(array):
    """Bytes of an array that stay as they are while it lives."""
    found = array.view(np.uint8).view(FrozenBytes)
    found.of = array
    return memoryview(found)


def test_what_does_not_change_is_copied_once():
    lender, one, other = Lender(), Borrower(), Borrower()
    sent = data(LONG)
    first = one.borrow(lender.lend("one", lasting(sent)), lambda number: None)
    second = other.borrow(lender.lend("other", lasting(sent)), lambda number: None)  # while the first one has it
    assert one._regions.keys() == other._regions.keys()
    assert (first == sent).all()
    assert (second == sent).all()
    lender.take_back("one", 1)
    third = one.borrow(lender.lend("one", lasting(data(LONG, 5))), lambda number: None)
    assert (second == sent).all(), "it is not written over while anybody has it"
    lender.take_back("other", 2)
    lender.take_back("one", 3)
    again = lender.lend("one", lasting(sent))  # nobody has it, but it holds the bytes
    assert (one.borrow(again, lambda number: None) == sent).all()
    assert len(one._regions) == 2
    del third


@pytest.mark.parametrize("change", ["part", "owner"])
def test_other_bytes_are_not_taken_for_those_that_were_sent(change):
    lender, borrower = Lender(), Borrower()
    sent = data(2 * LONG)
    borrower.borrow(lender.lend("peer", lasting(sent[:LONG])), lambda number: None)
    lender.take_back("peer", 1)
    if change == "part":
        expected = other = sent[LONG:]
    else:
        expected = other = sent[:LONG].copy()
        other[0] += 1
    got = borrower.borrow(lender.lend("peer", lasting(other)), lambda number: None)
    assert (got == expected).all()


def test_nobody_gives_back_what_another_one_has():
    lender, borrower = Lender(), Borrower()
    kept = borrower.borrow(lender.lend("peer", data(LONG, 1).data), lambda number: None)
    lender.take_back("another", 1)
    lender.take_back("peer", 7)
    other = borrower.borrow(lender.lend("peer", data(LONG, 2).data), lambda number: None)
    assert (kept == data(LONG, 1)).all()
    assert (other == data(LONG, 2)).all()
    lender.forget("peer")  # a region that the lost one may still read is not used again
    borrower.borrow(lender.lend("another", data(LONG, 3).data), lambda number: None)
    assert (kept == data(LONG, 1)).all()


@pytest.mark.parametrize("told", [b"", b"nonsense", pack(b"1", b"2"), pack(b"a b c", b"x", b"y", b"z")])
def test_a_malformed_loan_is_refused(told):
    with pytest.raises(DistNetworkError):
        Borrower().borrow(told, lambda number: None)
