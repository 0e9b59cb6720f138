"""Calls between processes, and between threads."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import calls, job
from weft.distributed import rpc


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.rpc.calls", 3, tmp_path_factory)


@pytest.mark.slow
@job.each(*calls.case, *calls.case_of_processes, long=calls.long_case)
def test_between_processes(case, workers):
    workers.run(case)


@job.each(*calls.case)
def test_between_threads(case):
    job.run_in_threads(case, 3)


def test_nothing_works_before_joining():
    for call in (
        lambda: rpc.rpc_sync("w1", len, ([],)),
        lambda: rpc.rpc_async("w1", len),
        lambda: rpc.remote("w1", len),
        rpc.get_worker_info,
        rpc.shutdown,
    ):
        with pytest.raises(
            RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc first"
        ):
            call()
    with pytest.raises(RuntimeError, match=r"^Current RPC agent is not set! Did you initialize the RPC framework"):
        rpc.RRef(1)


@pytest.mark.parametrize("name", ["a b", "", "x" * 128, "ä"])
def test_names_are_checked(name):
    with pytest.raises(RuntimeError, match=r"^Worker name must match"):
        rpc.init_rpc(name, rank=0, world_size=1)
    with pytest.raises(RuntimeError, match=r"^Worker name must match"):
        rpc.WorkerInfo(name, 0)


def _to_here(reference):
    return reference.to_here()


@pytest.fixture
def alone(tmp_path):
    """The only worker of a job."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store")
    rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
    yield
    rpc.shutdown()


def test_what_a_called_function_raises_is_logged_where_it_runs(alone, caplog):
    with pytest.raises(ZeroDivisionError):
        rpc.rpc_sync("w0", divmod, (1, 0))
    reference = rpc.remote("w0", divmod, (2, 0))
    with pytest.raises(ZeroDivisionError):
        reference.to_here()
    with pytest.raises(ZeroDivisionError):  # told again, logged once
        rpc.rpc_sync("w0", _to_here, (reference,))
    names = [record.message.partition(",")[0] for record in caplog.records]
    assert names[:2] == ["divmod", "divmod"]
    assert "Traceback" in caplog.text


def test_a_reference_calls_no_method_that_there_is_not(alone):
    reference = rpc.remote("w0", list)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_method'"):
        reference.remote().no_such_method()
    assert reference.remote().copy().to_here() == []
