"""Cases of references: worker 0 has some to values of w1 and w2, or shares its own."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import sys
from functools import partial

import pytest

import weft as torch
from tests.distributed.processes import Cases
from tests.distributed.rpc import job
from tests.distributed.rpc.gate import open_gate, wait_for_gate
from weft.distributed import rpc

case, case_of_processes, long_case = Cases(), Cases(), Cases()

_kept = []


class Counter:
    def __init__(self, start=0):
        self.count = start

    def up(self, by=1):
        self.count += by
        return self.count

    @rpc.functions.async_execution
    def later(self, by):
        return rpc.rpc_async("w0", both, (self.count, by))

    def fail(self):
        raise ValueError("no")


def both(x, y):
    return x + y


def wrong():
    raise KeyError("k")


def here(ref):
    return ref.to_here(), ref.is_owner(), ref.owner_name()


def keep(ref):
    _kept.append(ref)


def drop():
    _kept.clear()


def kept():
    return _kept[-1]


def onward(ref, to, function):
    return rpc.rpc_sync(to, function, (ref,))


def made_here():
    return rpc.RRef(7)


# --- what a reference tells of itself ---


@case
def a_user_knows_the_owner_and_gets_the_value():
    ref = rpc.remote("w1", both, (torch.ones(2), 1))
    assert ref.to_here().tolist() == [2, 2]
    assert ref.confirmed_by_owner()
    assert not ref.is_owner()
    assert ref.owner() == rpc.get_worker_info("w1")
    assert ref.owner_name() == "w1"
    assert ref._get_future().wait() is None


@case
def a_user_has_no_local_value():
    ref = rpc.remote("w1", both, (1, 2))
    with pytest.raises(RuntimeError, match=r"can't call localValue\(\) on user WorkerInfo\(id=0, name=w0\)\. Call it"):
        ref.local_value()


@case
def the_owner_has_the_value_itself():
    own = rpc.RRef([1])
    assert own.to_here() is own.local_value()
    assert own.is_owner()
    assert own.confirmed_by_owner()


@case
def a_worker_owns_what_it_asks_itself_for():
    mine = rpc.remote("w0", both, (1, 2))
    assert mine.is_owner()
    assert mine.to_here() == 3


@case
def a_reference_prints_its_numbers():
    number = r"GloballyUniqueId\(created_on=0, local_id=\d+\)"
    printed = repr(rpc.remote("w1", both, (1, 2)))
    assert re.fullmatch(rf"UserRRef\(RRefId = {number}, ForkId = {number}\)", printed)
    assert re.fullmatch(rf"OwnerRRef\({number}\)", repr(rpc.RRef(1)))


@case
def a_reference_is_copied_by_calls_alone():
    for ref in (rpc.remote("w1", both, (1, 2)), rpc.RRef(1)):
        for attempt in (pickle.dumps, copy.deepcopy):
            with pytest.raises(RuntimeError, match=r"^Can not pickle rref in python pickler, rref can only be pickled"):
                attempt(ref)


# --- sharing: each way from owner or user to owner or user, and back in answers ---


@case
def a_user_shares_it_with_the_owner():
    ref = rpc.remote("w1", both, (1, 2))
    assert rpc.rpc_sync("w1", here, (ref,)) == (3, True, "w1")


@case
def a_user_shares_it_with_a_user():
    ref = rpc.remote("w1", both, (1, 2))
    assert rpc.rpc_sync("w2", here, (ref,)) == (3, False, "w1")


@case
def a_user_that_it_was_shared_with_shares_it_with_the_owner():
    ref = rpc.remote("w1", both, (1, 2))
    assert rpc.rpc_sync("w2", onward, (ref, "w1", here)) == (3, True, "w1")


@case
def the_owner_shares_it_with_a_user_who_shares_it_on():
    own = rpc.RRef(5)
    assert rpc.rpc_sync("w1", here, (own,)) == (5, False, "w0")
    assert rpc.rpc_sync("w1", onward, (own, "w2", here)) == (5, False, "w0")
    assert rpc.rpc_sync("w1", onward, (own, "w0", here)) == (5, True, "w0")


@case
def the_owner_answers_with_it():
    back = rpc.rpc_sync("w1", made_here)
    assert back.to_here() == 7
    assert back.owner_name() == "w1"


@case
def a_reference_leads_to_a_reference():
    assert rpc.remote("w2", made_here).to_here().to_here() == 7


@case
def a_reference_that_was_shared_equals_what_it_came_from():
    ref, own = rpc.remote("w1", both, (1, 2)), rpc.RRef(5)
    for other in ("w1", "w2"):
        rpc.rpc_sync(other, keep, (own,))
        assert rpc.rpc_sync(other, kept) == own
        assert hash(rpc.rpc_sync(other, kept)) == hash(own)
        rpc.rpc_sync(other, drop)
    assert ref != own
    assert ref != 3


@case
def a_value_lives_on_when_its_creator_has_dropped_it():
    ref = rpc.remote("w1", both, (1, 2))
    rpc.rpc_sync("w2", keep, (ref,))
    del ref
    gc.collect()
    assert rpc.rpc_sync("w2", kept).to_here() == 3
    rpc.rpc_sync("w2", drop)


# --- methods of the value ---


@case
def methods_are_called_in_all_ways():
    ref = rpc.remote("w1", Counter, (3,))
    assert ref.rpc_sync().up() == 4
    assert ref.rpc_async().up(2).wait() == 6
    assert ref.remote().up(by=1).to_here() == 7


@case
def a_method_that_returns_a_future_is_answered_by_its_value():
    ref = rpc.remote("w1", Counter, (7,))
    assert ref.rpc_sync().later(1) == ref.rpc_async().later(1).wait() == ref.remote().later(1).to_here() == 8


@case
def what_a_method_raises_is_told():
    ref = rpc.remote("w1", Counter)
    with pytest.raises(ValueError, match="On WorkerInfo"):
        ref.rpc_sync().fail()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ref.rpc_sync().nothing()


@case
def a_method_that_is_late_fails():
    late = rpc.remote("w1", Waiting)
    with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
        late.rpc_sync(0.2).go()
    rpc.rpc_sync("w1", open_gate)


class Waiting:
    def go(self):
        return wait_for_gate()


@case
def the_owner_calls_methods_as_users_do():
    own = rpc.RRef(Counter())
    assert own.rpc_sync().up() == 1
    assert own.local_value().count == 1


@case
def a_call_keeps_the_reference_that_it_is_made_by():
    answer = rpc.remote("w1", Counter).rpc_async().up()
    assert answer.wait() == 1


# --- values that do not come ---


@case
def a_value_that_fails_fails_whoever_uses_it():
    ref = rpc.remote("w1", wrong)
    for use in (ref.to_here, ref.to_here, partial(rpc.rpc_sync, "w2", here, (ref,)), ref.rpc_sync().up):
        with pytest.raises(KeyError, match="On WorkerInfo"):
            use()
    assert not ref.confirmed_by_owner()
    with pytest.raises(KeyError):
        ref._get_future().wait()


@case
def a_value_of_this_worker_that_fails_is_told_here():
    own = rpc.remote("w0", wrong)
    with pytest.raises(KeyError):
        own.to_here()


@case
def a_value_that_was_late_fails_whatever_is_done_with_it():
    """Though it comes."""
    ref = rpc.remote("w1", wait_for_gate, timeout=0.1)
    told = r"^RPCErr:1:RPC ran for more than set timeout \(100 ms\)"
    with pytest.raises(RuntimeError, match=told):
        ref._get_future().wait()
    rpc.rpc_sync("w1", open_gate)
    for use in (
        ref.to_here,
        ref._get_type,
        ref.rpc_sync().bit_length,
        ref.rpc_async().bit_length,
        ref.remote().bit_length,
        partial(rpc.rpc_sync, "w2", here, (ref,)),
    ):
        with pytest.raises(RuntimeError, match=told):
            use()


@case_of_processes
def a_request_that_its_owner_cannot_read_fails_who_waits_for_the_value():
    only_here = sys.modules["__main__"].OnlyHere = type("OnlyHere", (), {"__module__": "__main__"})
    ref = rpc.remote("w1", only_here)
    other = rpc.remote("w1", both, (only_here, 1))
    for use in (ref.to_here, other.to_here, partial(rpc.rpc_sync, "w2", here, (ref,)), other.rpc_sync().up):
        with pytest.raises((AttributeError, RuntimeError), match="Can't get attribute 'OnlyHere' on"):
            use()
    with pytest.raises(AttributeError, match="Can't get attribute 'OnlyHere' on"):
        ref.to_here()


@long_case
def thousands_are_kept_and_given_up():
    refs = [rpc.remote("w1", both, (at, 1)) for at in range(2000)]
    assert [ref.to_here() for ref in refs[::100]] == list(range(1, 2001, 100))
    assert rpc.rpc_sync("w1", rpc.debug_info)["num_owner_rrefs"] == 2000


if __name__ == "__main__":
    job.main([*case, *case_of_processes, *long_case])
