"""What cannot be: each is a clear error, in bounded time, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from datetime import timedelta

import pytest

import weft as torch
from tests.distributed.rpc.leaks import left, left_in_the_end
from weft.distributed import autograd, rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc import api
from weft.distributed.rpc._errors import pack_error, remote_error
from weft.distributed.rpc._state import current_agent, here
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import JobKeyError, RpcError

ME = WorkerInfo("w1", 1)
NOT_THERE = "RPC has not been initialized"


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
    found = left_in_the_end()
    rpc.shutdown(timeout=20)
    assert found == {}


def test_what_cannot_be_pickled_leaves_nothing_behind(alone):
    own = rpc.RRef(1)
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(TypeError, match="cannot pickle a lock"):
            call("w0", same, ((own, Lock()),))
    assert rpc.rpc_sync("w0", lambda pair: pair[0].to_here(), ((own, lambda: 1),)) == 1  # sent whole at the second try
    del own, call
    assert left() == {}
    assert alone.counts()[0] == alone.counts()[1]


def test_a_result_that_cannot_be_read_is_an_error_of_the_call(alone):
    with pytest.raises(ArithmeticError, match=r"^it cannot be made again\n") as caught:
        rpc.rpc_sync("w0", unreadable)
    assert caught.value.__notes__ == ["The answer of worker w0 cannot be unpickled here; the function has run there."]
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


def test_arguments_that_are_none_are_refused_by_the_caller(alone):
    for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
        with pytest.raises(TypeError, match=r"^args must be a tuple of the function's arguments, got int; for one arg"):
            call("w0", same, args=5)
        with pytest.raises(
            TypeError, match=r"^args must be a tuple of the function's arguments, got str; .* args=\(x,"
        ):
            call("w0", same, args="a")
        with pytest.raises(TypeError, match=r"^kwargs must be a dict of the function's arguments by name, got tuple$"):
            call("w0", same, kwargs=("x", 1))
    assert rpc.rpc_sync("w0", same, args=[3]) == rpc.rpc_sync("w0", same, kwargs={"x": 3}) == 3
    assert alone.counts()[0] == 2


def test_short_timeouts_aredescribed(alone):
    with pytest.raises(
        RuntimeError, match=r"^RPCErr:1:RPC ran for more than set timeout \(0\.05 ms\) and will now be m"
    ):
        rpc.rpc_sync("w0", time.sleep, (0.2,), timeout=5e-5)


def test_unknown_workers_are_told_from_those_known(alone):
    for to, said in (("nope", "name nope; known are w0"), (7, "id 7; known are 0")):
        with pytest.raises(RuntimeError, match=rf"^name:w0,rank:0 could not find destination {said}$"):
            rpc.rpc_sync(to, same, (1,))


@pytest.mark.parametrize("roots", [5, "loss", [1], None])
def test_roots_that_are_no_tensors_are_refused(alone, roots):
    said = f"backward(): incompatible function arguments: roots must be a list of tensors, but got {roots!r}"
    with autograd.context() as context, pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        autograd.backward(context, roots)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "127.0.0.1:29500",
            "^No rendezvous handler for ://, got the address '127.0.0.1:29500'; .*; write tcp://127.0.0.1:",
        ),
        ("tcp://127.0.0.1:99999", "^'tcp://127.0.0.1:99999': Port out of range 0-65535$"),
        ("tcp://127.0.0.1:x", "^'tcp://127.0.0.1:x': Port could not be cast to integer"),
        ("tcp://127.0.0.1", "must name a host and a port"),
        ("file:///tmp/weft-none", "needs the rank: pass rank= to init_process_group or init_rpc, or put it there$"),
    ],
)
def test_addresses_that_lead_nowhere(address, said):
    with pytest.raises((ValueError, RuntimeError), match=said):
        rpc.init_rpc("w0", world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=address))


def test_device_maps_that_are_none():
    expected = r"^`set_device_map` for 'w1' must be a dict from devices here to devices there, .*, but got 'xla:0'$"
    with pytest.raises(TypeError, match=expected):
        rpc.TensorPipeRpcBackendOptions().set_device_map("w1", "xla:0")  # pyright: ignore[reportArgumentType]


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
    agent, here().agent = current_agent(), None
    try:
        monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
        with pytest.raises(JobKeyError, match="has another job key; give all processes of a job the same WEFT_JOB_KEY"):
            rpc.init_rpc("w1", rank=1, rpc_backend_options=options)
    finally:
        here().agent = agent
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
    return remote_error(*pack_error(error, ME))


def test_an_error_that_cannot_be_shown_or_sent_is_told_all_the_same():
    assert "<Silent, whose repr() fails>" in str(come_back(Silent()).args[0])

    class Local(Exception):
        pass

    found = come_back(Local("here"))
    assert str(found).startswith("On WorkerInfo(id=1, name=w1):\nLocal('here')\n")
    assert isinstance(come_back(Unsendable("x")), Unsendable)  # the class can be sent, and it takes a text


def test_an_error_whose_class_is_not_here_is_a_runtime_error_with_its_text(monkeypatch):
    told = pack_error(Unsendable("gone"), ME)
    monkeypatch.delattr("tests.distributed.rpc.test_bad_input.Unsendable")
    found = remote_error(*told)
    assert type(found) is RpcError
    why = "a type that cannot be made here from a text alone. Original exception on remote side was"
    kind = f"{__name__}.Unsendable, {why}"
    assert str(found).startswith(f"On WorkerInfo(id=1, name=w1): {kind}\nUnsendable('gone')\n")


def test_a_nested_error_stays_readable():
    error = KeyError("k")
    for number in (3, 2, 1):
        try:
            raise error
        except KeyError as raised:
            error = remote_error(*pack_error(raised, WorkerInfo(f"w{number}", number)))
    assert type(error) is KeyError
    text = error.args[0]
    places = [text.index(f"On WorkerInfo(id={number}, name=w{number}):") for number in (1, 2, 3)]
    assert places == sorted(places)
    assert text.count("KeyError('k')") == 1
    assert "\\n" not in text


def test_an_open_file_cannot_be_sent(alone):
    with open(__file__) as file, pytest.raises(TypeError, match=r"cannot pickle '_io\.TextIOWrapper' object"):
        rpc.rpc_sync("w0", same, (file,))


def test_the_type_of_a_value_and_what_is_no_tensor(alone):
    own, made = rpc.RRef(3), rpc.remote("w0", same, ("x",))
    assert (own._get_type(), made._get_type(), own._get_type(blocking=False).wait()) == (int, str, int)
    with pytest.raises(RuntimeError, match=r"^RRef should contain a tensor for \.backward\(\), but contains a int$"):
        own.backward()
    del own, made


@pytest.mark.parametrize(
    ("timeout", "kind", "told"),
    [
        ("x", TypeError, "timeout must be a number of seconds, but got 'x'"),
        (-5, RuntimeError, "got -5$"),
        (float("nan"), RuntimeError, "got nan$"),
    ],
)
def test_a_shutdown_that_is_asked_wrongly_does_nothing(alone, timeout, kind, told):
    with pytest.raises(kind, match=told):
        rpc.shutdown(timeout=timeout)
    assert rpc.rpc_sync("w0", same, (1,)) == 1


@pytest.mark.parametrize("graceful", [True, False])
def test_several_threads_leave_together(tmp_path, graceful):
    """One does it; who comes when it is done has nothing to leave."""
    for number in range(5):
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/{number}", rpc_timeout=20)
        rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
        said = []

        def leave(said=said):
            try:
                said.append(rpc.shutdown(graceful=graceful, timeout=20))
            except RuntimeError as error:
                said.append(str(error)[: len(NOT_THERE)])

        threads = [threading.Thread(target=leave) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert None in said
        assert {None, NOT_THERE} >= set(said)


@pytest.mark.filterwarnings("ignore:os.fork")  # jax warns of it
def test_a_fork_has_no_part_in_the_job(alone):
    pid = os.fork()
    if not pid:
        try:
            rpc.rpc_sync("w0", same, (1,))
        except RuntimeError as error:
            os._exit(not str(error).startswith(NOT_THERE))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert rpc.rpc_sync("w0", same, (1,)) == 1


def test_threads_end(alone):
    assert any("weft rpc w0" in thread.name for thread in threading.enumerate())
    assert torch.equal(rpc.rpc_sync("w0", same, (torch.ones(3),)), torch.ones(3))
