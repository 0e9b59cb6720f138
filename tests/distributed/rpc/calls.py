"""Cases of calls: worker 0 calls w1 and w2."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft as torch
from tests.distributed.processes import Cases, in_threads
from tests.distributed.rpc import job
from tests.distributed.rpc.gate import open_gate, wait_for_gate
from weft.distributed import rpc

case, case_of_processes, long_case = Cases(), Cases(), Cases()


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


_met = threading.Semaphore(0)
_arrived = []


def meet(number):
    """Return when that many calls of this have come."""
    _arrived.append(1)
    if len(_arrived) % number == 0:
        _met.release(number)
    assert _met.acquire(timeout=60), "the others have not come"
    return number


# --- values ---


@case
def a_worker_is_known_by_name_number_and_information():
    info = rpc.get_worker_info("w1")
    assert repr(info) == "WorkerInfo(id=1, name=w1)"
    assert (info.name, info.id) == ("w1", 1)
    assert rpc.get_worker_info() == rpc.get_worker_info("w0")
    for to in ("w1", 1, info, "w0"):
        assert rpc.rpc_sync(to, both, (1,), {"y": 2}) == 3


@case
def an_asynchronous_call_gives_a_future():
    assert rpc.rpc_async("w1", both, args=(1,)).wait() == 2


@case
def a_function_that_no_module_has_is_sent_whole():
    assert rpc.rpc_sync("w1", lambda x: x * 2, (4,)) == 8


@case
def an_operator_is_called():
    assert rpc.rpc_sync("w1", torch.add, (torch.ones(2), 1)).tolist() == [2, 2]


@case
def a_called_function_calls_others_and_its_caller():
    assert rpc.rpc_sync("w1", onward, ("w2", 1)) == rpc.rpc_sync("w1", onward, ("w0", 1)) == 2


@case
def a_function_that_returns_a_future_is_answered_by_its_value():
    assert rpc.rpc_sync("w1", chained, ("w2", 1)) == 3


@case_of_processes
def workers_that_are_processes_share_nothing():
    assert rpc.rpc_sync("w1", Counter.up) == 1
    assert Counter.count == 0


# --- tensors ---


@case
def a_tensor_comes_back_as_it_was():
    x = torch.arange(6.0).reshape(2, 3)
    for one in (x, x.T, x[:, 1], x[::2], torch.tensor(3), torch.ones(0, 2), torch.ones(2, dtype=torch.bfloat16) / 3):
        got = rpc.rpc_sync("w1", same, (one,))
        assert got.dtype is one.dtype
        assert torch.equal(got, one)


@case
def a_tensor_keeps_its_class_and_whether_it_requires_gradients():
    x, w = torch.ones(2), torch.ones(2, requires_grad=True)
    assert rpc.rpc_sync("w1", kinds, (x,)) == ("Tensor", False, True)
    assert rpc.rpc_sync("w1", kinds, (w,)) == rpc.rpc_sync("w1", kinds, (w * 2,)) == ("Tensor", True, True)
    assert rpc.rpc_sync("w1", kinds, (torch.nn.Parameter(x),)) == ("Parameter", True, True)


@case
def a_tensor_that_is_sent_twice_in_one_call_stays_one():
    x = torch.ones(2)
    first, second = rpc.rpc_sync("w1", same, ((x, x),))
    assert first is second


@case
def long_tensors_stay_as_they_came_while_others_come():
    """Memory that was lent is not used again before it is given back."""
    kept = []
    for size in (1, 1 << 10, 1 << 14, 1 << 18, 1 << 22):
        x = torch.arange(size, dtype=torch.float32)
        for _ in range(3):
            got = rpc.rpc_sync("w1", same, (x,))
            assert torch.equal(got, x)
            kept.append((x, got + 0, got))
    for x, *copies in kept:
        assert all(torch.equal(copy, x) for copy in copies)


@case
def an_array_is_its_receivers_own():
    for size in (1, 1 << 10, 1 << 18, 1 << 22):
        got = rpc.rpc_sync("w1", same, (np.full(size, 7),))
        assert (got == 7).all()
        got[0] = 8


# --- errors ---


@case
def an_error_keeps_its_type_and_tells_where_it_was_raised():
    with pytest.raises(KeyError, match=r"On WorkerInfo\(id=1, name=w1\):.*KeyError.*in wrong") as caught:
        rpc.rpc_sync("w1", wrong)
    assert "calls.py" in str(caught.value)


@case
def an_error_that_cannot_be_made_again_is_told_as_text():
    with pytest.raises(RuntimeError, match=r"On WorkerInfo\(id=1, name=w1\): \S+\.Odd, a type that .*\nOdd\(1, 2\)"):
        rpc.rpc_sync("w1", odd)


@case
def a_function_that_exits_is_an_error_and_its_worker_goes_on():
    with pytest.raises(RuntimeError, match="SystemExit"):
        rpc.rpc_sync("w1", leave)
    assert rpc.rpc_sync("w1", same, (1,)) == 1


@case
def an_async_execution_that_returns_no_future_is_refused():
    with pytest.raises(RuntimeError, match=r"must return a torch.futures.Future object, but got builtins.int"):
        rpc.rpc_sync("w1", no_future)


@case
def a_worker_that_is_not_known_is_named():
    with pytest.raises(
        RuntimeError, match=r"^name:w0,rank:0 could not find destination name nope; known are w0, w1, w2$"
    ):
        rpc.rpc_sync("nope", same, (1,))
    with pytest.raises(RuntimeError, match=r"could not find destination id 9; known are 0, 1, 2$"):
        rpc.rpc_async(9, same, (1,))
    with pytest.raises(ValueError, match=r"^Cannot get WorkerInfo from name 1\.5$"):
        rpc.rpc_sync(1.5, same, (1,))


@case
def what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"^function should be callable\.$"):
        rpc.remote("w1", 3)


@case
def what_cannot_be_pickled_is_told_to_the_caller():
    """An argument at once, and a result by the worker that has it."""
    with pytest.raises(TypeError, match="cannot pickle a lock"):
        rpc.rpc_sync("w1", same, (Lock(),))
    with pytest.raises(TypeError, match=r"(?s)On WorkerInfo\(id=1, name=w1\):.*cannot pickle a lock"):
        rpc.rpc_sync("w1", Lock)


@case
def nobody_joins_twice():
    with pytest.raises(RuntimeError, match="RPC is already initialized"):
        rpc.init_rpc("again")
    assert rpc.rpc_sync("w1", same, (1,)) == 1


# --- timeouts: a called function waits until the case is over ---

_LATE = r"^RPCErr:1:RPC ran for more than set timeout \(200 ms\) and will now be marked with an error$"


@case
def a_call_that_is_late_fails():
    with pytest.raises(RuntimeError, match=_LATE):
        rpc.rpc_sync("w1", wait_for_gate, timeout=0.2)
    rpc.rpc_sync("w1", open_gate)


@case
def a_call_that_nobody_waits_for_fails_in_time():
    done = threading.Event()
    rpc.rpc_async("w1", wait_for_gate, timeout=0.2).add_done_callback(lambda _: done.set())
    assert done.wait(60), "the call has not failed"
    rpc.rpc_sync("w1", open_gate)


@case
def a_value_that_is_late_fails_who_asks_for_it():
    reference = rpc.remote("w1", wait_for_gate)
    with pytest.raises(RuntimeError, match=_LATE):
        reference.to_here(timeout=0.2)
    rpc.rpc_sync("w1", open_gate)


@case
def a_timeout_of_zero_is_no_limit():
    assert rpc.rpc_sync("w1", same, (1,), timeout=0) == 1


@case
def a_timeout_that_is_none_is_refused():
    text = "timeout must be a number of seconds, 0 for no limit, or -1 for the default"
    with pytest.raises(RuntimeError, match=text):
        rpc.rpc_sync("w1", same, (1,), timeout=-5)
    with pytest.raises(TypeError, match="timeout must be a number"):
        rpc.rpc_sync("w1", same, (1,), timeout="x")


# --- many ---


@long_case
def eight_threads_call_at_once():
    def call(thread):
        for at in range(200):
            assert rpc.rpc_sync("w1", same, ((thread, at),)) == (thread, at)

    in_threads(8, call)


@long_case
def five_thousand_calls_are_under_way():
    futures = [rpc.rpc_async("w1", same, (at,)) for at in range(5000)]
    assert [future.wait() for future in futures] == list(range(5000))


@case
def functions_that_wait_for_each_other_run_at_once():
    assert [future.wait() for future in [rpc.rpc_async("w1", meet, (4,)) for _ in range(4)]] == [4] * 4


if __name__ == "__main__":
    job.main([*case, *case_of_processes, *long_case])
