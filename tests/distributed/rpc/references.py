"""Programs about references."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import time
from functools import partial

import pytest

import weft as torch
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from weft.distributed import rpc

_kept = []
_gate = threading.Event()


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


def wait_for_gate():
    assert _gate.wait(60)
    return 1


def open_gate():
    _gate.set()


def made_here():
    return rpc.RRef(7)


def members():
    ref = rpc.remote("w1", both, (torch.ones(2), 1))
    assert ref.to_here().tolist() == [2, 2]
    assert ref.confirmed_by_owner()
    assert not ref.is_owner()
    assert ref.owner() == rpc.get_worker_info("w1")
    assert ref.owner_name() == "w1"
    number = "GloballyUniqueId(created_on=0, local_id=0)"
    fork = "GloballyUniqueId(created_on=0, local_id=1)"
    assert repr(ref) == f"UserRRef(RRefId = {number}, ForkId = {fork})"
    with pytest.raises(RuntimeError, match=r"can't call localValue\(\) on user WorkerInfo\(id=0, name=w0\)\. Call it"):
        ref.local_value()
    own = rpc.RRef([1])
    assert repr(own).startswith("OwnerRRef(GloballyUniqueId(created_on=0, local_id=")
    assert own.to_here() is own.local_value()
    assert own.is_owner()
    assert own.confirmed_by_owner()
    for one in (ref, own):
        for attempt in (pickle.dumps, copy.deepcopy):
            with pytest.raises(RuntimeError, match=r"^Can not pickle rref in python pickler, rref can only be pickled"):
                attempt(one)
    mine = rpc.remote("w0", both, (1, 2))
    assert mine.is_owner()
    assert mine.to_here() == 3
    assert ref._get_future().wait() is None
    del ref, own, mine, one
    nothing_is_left("w1", "w2")


def sharing():
    """The scenarios of the protocol: each way from owner or user to owner or user, and back in answers."""
    ref = rpc.remote("w1", both, (1, 2))
    assert rpc.rpc_sync("w1", here, (ref,)) == (3, True, "w1")  # a user to its owner
    assert rpc.rpc_sync("w2", here, (ref,)) == (3, False, "w1")  # a user to a user
    assert rpc.rpc_sync("w2", onward, (ref, "w1", here)) == (3, True, "w1")
    own = rpc.RRef(5)
    assert rpc.rpc_sync("w1", here, (own,)) == (5, False, "w0")  # the owner to a user
    assert rpc.rpc_sync("w1", onward, (own, "w2", here)) == (5, False, "w0")
    assert rpc.rpc_sync("w1", onward, (own, "w0", here)) == (5, True, "w0")
    back = rpc.rpc_sync("w1", made_here)  # its owner gives it as an answer
    assert back.to_here() == 7
    assert back.owner_name() == "w1"
    of_ref = rpc.remote("w2", made_here)
    assert of_ref.to_here().to_here() == 7
    for other in ("w1", "w2"):
        rpc.rpc_sync(other, keep, (own,))
        assert rpc.rpc_sync(other, kept) == own
        assert hash(rpc.rpc_sync(other, kept)) == hash(own)
        rpc.rpc_sync(other, drop)
    assert ref != own
    assert ref != 3
    rpc.rpc_sync("w2", keep, (ref,))
    del ref
    gc.collect()
    assert rpc.rpc_sync("w2", kept).to_here() == 3  # its creator has gone, and it is still there
    rpc.rpc_sync("w2", drop)
    del own, back, of_ref
    nothing_is_left("w1", "w2")


def methods():
    ref = rpc.remote("w1", Counter, (3,))
    assert ref.rpc_sync().up() == 4
    assert ref.rpc_async().up(2).wait() == 6
    assert ref.remote().up(by=1).to_here() == 7
    assert ref.rpc_sync().later(1) == ref.rpc_async().later(1).wait() == ref.remote().later(1).to_here() == 8
    with pytest.raises(ValueError, match="On WorkerInfo"):
        ref.rpc_sync().fail()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ref.rpc_sync().nothing()
    with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
        rpc.remote("w1", Sleeper).rpc_sync(0.2).go()
    own = rpc.RRef(Counter())
    assert own.rpc_sync().up() == 1
    assert own.local_value().count == 1
    answer = rpc.remote("w1", Counter).rpc_async().up()  # nothing but the call keeps the reference
    assert answer.wait() == 1
    del ref, own
    nothing_is_left("w1", "w2")


class Sleeper:
    def go(self):
        time.sleep(2)


def failures():
    ref = rpc.remote("w1", wrong)
    for use in (ref.to_here, ref.to_here, partial(rpc.rpc_sync, "w2", here, (ref,)), ref.rpc_sync().up):
        with pytest.raises(KeyError, match="On WorkerInfo"):
            use()
    assert not ref.confirmed_by_owner()
    with pytest.raises(KeyError):
        ref._get_future().wait()
    own = rpc.remote("w0", wrong)
    with pytest.raises(KeyError):
        own.to_here()
    del ref, own, use
    nothing_is_left("w1", "w2")


def late():
    """A value that is not created in time, though it comes: its reference fails whatever is done with it."""
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
    del ref, use
    nothing_is_left("w1", "w2")


def unreadable():
    """A request that its owner cannot read: nobody waits for the value in vain."""
    only_here = sys.modules["__main__"].OnlyHere = type("OnlyHere", (), {"__module__": "__main__"})
    ref = rpc.remote("w1", only_here)
    other = rpc.remote("w1", both, (only_here, 1))
    for use in (ref.to_here, other.to_here, partial(rpc.rpc_sync, "w2", here, (ref,)), other.rpc_sync().up):
        with pytest.raises((AttributeError, RuntimeError), match="Can't get attribute 'OnlyHere' on"):
            use()
    with pytest.raises(AttributeError, match="Can't get attribute 'OnlyHere' on"):
        ref.to_here()
    del ref, other, use
    nothing_is_left("w1", "w2")


def thousands():
    refs = [rpc.remote("w1", both, (at, 1)) for at in range(2000)]
    assert [ref.to_here() for ref in refs[::100]] == list(range(1, 2001, 100))
    assert rpc.rpc_sync("w1", rpc.debug_info)["num_owner_rrefs"] == 2000
    del refs
    nothing_is_left("w1", "w2")


PROGRAMS = {one.__name__: one for one in (members, sharing, methods, failures, late, unreadable, thousands)}


if __name__ == "__main__":
    job.main(PROGRAMS)
