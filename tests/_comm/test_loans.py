"""Memory lent between processes; here, both ends are in one."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from weft._comm.loans import Borrower, Lender
from weft._comm.wire import pack
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
