"""What cannot be: each is a clear error, in bounded time, and leaves nothing behind."""

from __future__ import annotations

import gc
import threading
from datetime import timedelta

import pytest

import weft as torch
from weft.distributed import rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc import api
from weft.distributed.rpc._references import GloballyUniqueId, References
from weft.distributed.rpc._service import _told, raised_there
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import JobKeyError, RpcError

ME = WorkerInfo("w1", 1)


class Silent(Exception):
    """Cannot even be shown."""

    def __repr__(self):
        raise ValueError("no repr")

    __str__ = __repr__


class Unsendable(Exception):
    def __reduce__(self):
        raise RuntimeError("no pickle")


class Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self):
        return _broken, ()


def _broken():
    raise ArithmeticError("it cannot be made again")


class Lock:
    def __reduce__(self):
        raise TypeError("cannot pickle a lock")


def same(x):
    return x


def unreadable():
    return Unreadable()


@pytest.fixture
def alone(tmp_path):
    """A job of this process alone."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store", rpc_timeout=20)
    rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
    yield current_agent()
    rpc.shutdown(timeout=20)


def figures():
    gc.collect()
    found = rpc.debug_info()
    return {name: found[name] for name in ("num_owner_rrefs", "num_forks", "num_parent_rrefs", "num_pending_calls")}


def test_what_cannot_be_pickled_leaves_nothing_behind(alone):
    own = rpc.RRef(1)
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(TypeError, match="cannot pickle a lock"):
            call("w0", same, ((own, Lock()),))
    assert rpc.rpc_sync("w0", lambda pair: pair[0].to_here(), ((own, lambda: 1),)) == 1  # sent whole at the second try
    del own, call
    assert not any(figures().values())
    assert alone.counts()[0] == alone.counts()[1]


def test_a_result_that_cannot_be_read_is_an_error_of_the_call(alone):
    with pytest.raises(ArithmeticError, match="it cannot be made again"):
        rpc.rpc_sync("w0", unreadable)
    assert rpc.rpc_sync("w0", same, (3,)) == 3


@pytest.mark.parametrize("timeout", [-2, -0.5, float("-inf"), float("nan")])
def test_negative_timeouts_are_refused(alone, timeout):
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(
            RuntimeError, match=r"^timeout must be a number of seconds, 0 for no limit, or -1 for the def"
        ):
            call("w0", same, (1,), timeout=timeout)
    with pytest.raises(RuntimeError, match="timeout must be a number of seconds"):
        rpc.RRef(1).to_here(timeout)


def test_no_timeout_is_no_limit(alone):
    assert rpc.rpc_sync("w0", same, (1,), timeout=0) == 1
    assert rpc.rpc_async("w0", same, (1,), timeout=0).wait() == 1
    assert rpc.remote("w0", same, (1,), timeout=0).to_here(0) == 1


def test_after_shutdown_nothing_can_be_called(tmp_path):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store")
    rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
    own = rpc.RRef(1)
    rpc.shutdown()
    for call in (
        lambda: rpc.rpc_sync("w0", same, (1,)),
        lambda: own.rpc_sync().bit_length(),
        rpc.get_worker_info,
        rpc.shutdown,
    ):
        with pytest.raises(
            RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc"
        ):
            call()


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(api, "_PATIENCE", timedelta(seconds=0.5))
    address = f"tcp://127.0.0.1:{free_port()}"
    options = rpc.TensorPipeRpcBackendOptions(init_method=address)
    with pytest.raises(RuntimeError, match=rf"{address.removeprefix('tcp://')}"):
        rpc.init_rpc("w1", rank=1, world_size=2, rpc_backend_options=options)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.get_worker_info()


def test_another_key(monkeypatch):
    monkeypatch.setattr(api, "_PATIENCE", timedelta(seconds=20))
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{free_port()}")
    rpc.init_rpc("w0", rank=0, rpc_backend_options=options)
    agent, api.here.agent = current_agent(), None
    try:
        monkeypatch.setenv("WEFT_JOB_KEY", "another one")
        with pytest.raises(JobKeyError, match="has another job key; give all processes of a job the same WEFT_JOB_KEY"):
            rpc.init_rpc("w1", rank=1, rpc_backend_options=options)
    finally:
        api.here.agent = agent
        del agent
        rpc.shutdown()
        gc.collect()


@pytest.mark.parametrize("world_size", [0, -1, 2.5, "2"])
def test_numbers_of_workers_that_cannot_be(world_size, tmp_path):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store")
    with pytest.raises((ValueError, TypeError)):
        rpc.init_rpc("w0", rank=0, world_size=world_size, rpc_backend_options=options)


# --- errors from afar ---


def come_back(error):
    return raised_there(*_told(error, ME))


def test_an_error_that_cannot_be_shown_or_sent_is_told_all_the_same():
    assert "<Silent, whose repr() fails>" in str(come_back(Silent()).args[0])

    class Local(Exception):
        pass

    found = come_back(Local("here"))
    assert str(found).startswith("On WorkerInfo(id=1, name=w1):\nLocal('here')\n")
    assert isinstance(come_back(Unsendable("x")), Unsendable)  # the class can be sent, and it takes a text


def test_an_error_whose_class_is_not_here_is_a_runtime_error_with_its_text(monkeypatch):
    told = _told(Unsendable("gone"), ME)
    monkeypatch.delattr("tests.distributed.rpc.test_bad_input.Unsendable")
    found = raised_there(*told)
    assert type(found) is RpcError
    assert str(found).startswith("On WorkerInfo(id=1, name=w1):\nUnsendable('gone')\n")


def test_a_nested_error_stays_readable():
    error = KeyError("k")
    for number in (3, 2, 1):
        try:
            raise error
        except KeyError as raised:
            error = raised_there(*_told(raised, WorkerInfo(f"w{number}", number)))
    assert type(error) is KeyError
    text = error.args[0]
    places = [text.index(f"On WorkerInfo(id={number}, name=w{number}):") for number in (1, 2, 3)]
    assert places == sorted(places)
    assert text.count("KeyError('k')") == 1
    assert "\\n" not in text


# --- who is lost ---


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


def test_threads_end(alone):
    assert any("weft rpc w0" in thread.name for thread in threading.enumerate())
    assert torch.equal(rpc.rpc_sync("w0", same, (torch.ones(3),)), torch.ones(3))
