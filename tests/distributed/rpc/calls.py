"""Programs about calls."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import weft as torch
from tests.distributed.rpc import job
from weft.distributed import rpc


class Odd(Exception):
    """Takes two arguments, so it cannot be made again from a text."""

    def __init__(self, one, two):
        super().__init__(one, two)


class Counter:
    count = 0

    @classmethod
    def up(cls):
        cls.count += 1
        return cls.count


def same(x):
    return x


def both(x, y=1):
    return x + y


def odd():
    raise Odd(1, 2)


def wrong():
    raise KeyError("k")


def leave():
    raise SystemExit(3)


def kinds(x):
    return type(x).__name__, x.requires_grad, x.is_leaf


def onward(to, x):
    return rpc.rpc_sync(to, both, (x,))


@rpc.functions.async_execution
def chained(to, x):
    return rpc.rpc_async(to, both, (x,)).then(lambda done: done.wait() + 1)


@rpc.functions.async_execution
def no_future():
    return 3


class Lock:
    def __reduce__(self):
        raise TypeError("cannot pickle a lock")


def values():
    info = rpc.get_worker_info("w1")
    assert repr(info) == "WorkerInfo(id=1, name=w1)"
    assert (info.name, info.id) == ("w1", 1)
    assert rpc.get_worker_info() == rpc.get_worker_info("w0")
    for to in ("w1", 1, info, "w0"):
        assert rpc.rpc_sync(to, both, (1,), {"y": 2}) == 3
    assert rpc.rpc_async("w1", both, args=(1,)).wait() == 2
    assert rpc.rpc_sync("w1", lambda x: x * 2, (4,)) == 8  # no module has it: it is sent whole
    assert rpc.rpc_sync("w1", torch.add, (torch.ones(2), 1)).tolist() == [2, 2]
    assert rpc.rpc_sync("w1", onward, ("w2", 1)) == rpc.rpc_sync("w1", onward, ("w0", 1)) == 2
    assert rpc.rpc_sync("w1", chained, ("w2", 1)) == 3


def tensors():
    x = torch.arange(6.0).reshape(2, 3)
    for one in (x, x.T, x[:, 1], x[::2], torch.tensor(3), torch.ones(0, 2), torch.ones(2, dtype=torch.bfloat16) / 3):
        got = rpc.rpc_sync("w1", same, (one,))
        assert got.dtype is one.dtype
        assert torch.equal(got, one)
    w = torch.ones(2, requires_grad=True)
    assert rpc.rpc_sync("w1", kinds, (x,)) == ("Tensor", False, True)
    assert rpc.rpc_sync("w1", kinds, (w,)) == rpc.rpc_sync("w1", kinds, (w * 2,)) == ("Tensor", True, True)
    assert rpc.rpc_sync("w1", kinds, (torch.nn.Parameter(x),)) == ("Parameter", True, True)
    first, second = rpc.rpc_sync("w1", same, ((x, x),))
    assert first is second


def long_ones():
    kept = []
    for size in (1, 1 << 10, 1 << 14, 1 << 18, 1 << 22):
        x = torch.arange(size, dtype=torch.float32)
        for _ in range(3):
            got = rpc.rpc_sync("w1", same, ({"x": x, "n": np.full(size, 7)},))
            assert torch.equal(got["x"], x)
            assert (got["n"] == 7).all()
            got["n"][0] = 8  # an array is its receiver's own
            kept.append((x, got["x"] + 0, got["x"]))
    for x, *copies in kept:  # memory that was lent is not used again before it is given back
        assert all(torch.equal(copy, x) for copy in copies)


def errors():
    with pytest.raises(KeyError, match=r"On WorkerInfo\(id=1, name=w1\):.*KeyError.*in wrong") as caught:
        rpc.rpc_sync("w1", wrong)
    assert "calls.py" in str(caught.value)
    with pytest.raises(RuntimeError, match=r"On WorkerInfo\(id=1, name=w1\): \S+\.Odd, a type that .*\nOdd\(1, 2\)"):
        rpc.rpc_sync("w1", odd)
    with pytest.raises(RuntimeError, match="SystemExit"):
        rpc.rpc_sync("w1", leave)
    with pytest.raises(RuntimeError, match=r"must return a torch.futures.Future object, but got builtins.int"):
        rpc.rpc_sync("w1", no_future)
    with pytest.raises(RuntimeError, match=r"^name:w0,rank:0 could not find destination name nope; known are w0, w1$"):
        rpc.rpc_sync("nope", same, (1,))
    with pytest.raises(RuntimeError, match=r"could not find destination id 9; known are 0, 1$"):
        rpc.rpc_async(9, same, (1,))
    with pytest.raises(ValueError, match=r"^Cannot get WorkerInfo from name 1\.5$"):
        rpc.rpc_sync(1.5, same, (1,))
    with pytest.raises(TypeError, match=r"^function should be callable\.$"):
        rpc.remote("w1", 3)
    with pytest.raises(TypeError, match="cannot pickle a lock"):
        rpc.rpc_sync("w1", same, (Lock(),))
    with pytest.raises(TypeError, match=r"(?s)On WorkerInfo\(id=1, name=w1\):.*cannot pickle a lock"):
        rpc.rpc_sync("w1", Lock)
    with pytest.raises(RuntimeError, match="RPC is already initialized"):
        rpc.init_rpc("again")
    assert rpc.rpc_sync("w1", same, (1,)) == 1


def timeouts():
    late = r"^RPCErr:1:RPC ran for more than set timeout \(200 ms\) and will now be marked with an error$"
    with pytest.raises(RuntimeError, match=late):
        rpc.rpc_sync("w1", time.sleep, (3,), timeout=0.2)
    done = threading.Event()
    rpc.rpc_async("w1", time.sleep, (3,), timeout=0.2).add_done_callback(lambda _: done.set())
    assert done.wait(60)  # nobody waits for the call itself
    with pytest.raises(RuntimeError, match=late):
        rpc.remote("w1", time.sleep, (3,)).to_here(timeout=0.2)
    assert rpc.rpc_sync("w1", same, (1,), timeout=0) == 1
    with pytest.raises(
        RuntimeError, match="timeout must be a number of seconds, 0 for no limit, or -1 for the default"
    ):
        rpc.rpc_sync("w1", same, (1,), timeout=-5)
    with pytest.raises(TypeError, match="timeout must be a number"):
        rpc.rpc_sync("w1", same, (1,), timeout="x")


def many():
    """Threads, and calls that wait for each other, up to as many at a time as there are worker threads."""
    wrongs = []

    def call(start):
        for at in range(start, start + 200):
            if rpc.rpc_sync("w1", same, (at,)) != at:
                wrongs.append(at)

    threads = [threading.Thread(target=call, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrongs
    futures = [rpc.rpc_async("w1", same, (at,)) for at in range(5000)]
    assert [future.wait() for future in futures] == list(range(5000))
    assert [future.wait() for future in [rpc.rpc_async("w1", meet, (4,)) for _ in range(4)]] == [4] * 4


_met = threading.Semaphore(0)
_arrived = []


def meet(number):
    """Return when that many calls of this have come."""
    _arrived.append(1)
    if len(_arrived) == number:
        _met.release(number)
    _met.acquire()
    return number


def apart():
    """Workers that are processes share nothing."""
    assert rpc.rpc_sync("w1", Counter.up) == 1
    assert Counter.count == 0


PROGRAMS = {one.__name__: one for one in (values, apart, tensors, long_ones, errors, timeouts, many)}


if __name__ == "__main__":
    job.main(PROGRAMS)
