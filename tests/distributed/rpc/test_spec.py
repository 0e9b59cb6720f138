"""The examples of the reference texts of remote calls run as documented."""

from __future__ import annotations

import pytest

from tests.distributed.rpc import job, spec
from weft.distributed import rpc, run_threads
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc import backend_registry


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    yield from job.shared("tests.distributed.rpc.spec", 3, tmp_path_factory, **meeting)


@job.each(*spec.case)
def test_examples(case, workers):
    workers.run(case)


@job.each(*spec.case)
def test_examples_between_threads(case):
    def work(rank):
        spec.join(rank, 3)
        if rank == 0:
            job.run_alone(case, 3)
        rpc.shutdown()

    run_threads(work, nprocs=3)


def test_options_have_documented_defaults():
    options = rpc.TensorPipeRpcBackendOptions()
    found = (options.num_worker_threads, options.rpc_timeout, options.init_method, options.device_maps, options.devices)
    assert found == (16, 60.0, "env://", {}, [])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=20, init_method="tcp://localhost:29500")
    assert (options.num_worker_threads, options.rpc_timeout, options.init_method) == (8, 20.0, "tcp://localhost:29500")
    with pytest.raises(TypeError):
        rpc.TensorPipeRpcBackendOptions(8)
    base = rpc.RpcBackendOptions()
    assert (base.rpc_timeout, base.init_method) == (60.0, "env://")
    assert isinstance(options, rpc.RpcBackendOptions)


@pytest.fixture
def types():
    """`BackendType` as it was, afterwards."""
    before = list(backend_registry._types)
    yield
    backend_registry._types[:] = before


def test_backends_are_registered(types):
    assert repr(rpc.BackendType.TENSORPIPE) == "BackendType.TENSORPIPE"
    assert backend_registry.backend_registered("TENSORPIPE")
    assert not backend_registry.backend_registered("MINE")
    with pytest.raises(RuntimeError, match=r"^RPC backend TENSORPIPE: already registered$"):
        backend_registry.register_backend("TENSORPIPE", None, None)
    mine = backend_registry.register_backend("MINE", rpc.RpcBackendOptions, lambda *args, **kwargs: (args, kwargs))
    assert mine is backend_registry.BackendType.MINE
    assert repr(mine) == "BackendType.MINE"
    assert [one.name for one in backend_registry.BackendType] == ["TENSORPIPE", "MINE"]
    options = backend_registry.construct_rpc_backend_options(mine, rpc_timeout=3, init_method="tcp://localhost:1")
    assert (options.rpc_timeout, options.init_method) == (3, "tcp://localhost:1")
    options = backend_registry.construct_rpc_backend_options(rpc.BackendType.TENSORPIPE, num_worker_threads=2)
    assert (options.rpc_timeout, options.init_method, options.num_worker_threads) == (60.0, "env://", 2)
    assert backend_registry.init_backend(mine, 1, name="w") == ((1,), {"name": "w"})


@pytest.mark.parametrize(
    "call",
    [
        rpc.get_worker_info,
        rpc.shutdown,
        rpc.get_rpc_timeout,
        rpc.debug_info,
        lambda: rpc.rpc_sync("worker1", min),
        lambda: rpc.rpc_async("worker1", min),
        lambda: rpc.remote("worker1", min),
        lambda: rpc.api._all_gather(1),
        lambda: rpc.api._barrier(["a"]),
        rpc.api._require_initialized(int),
        lambda: rpc._set_rpc_timeout(1),
    ],
)
def test_nothing_works_before_joining(call):
    assert not rpc._is_current_rpc_agent_set()
    with pytest.raises(
        RuntimeError, match=r"^RPC has not been initialized\. Call torch\.distributed\.rpc\.init_rpc first\.$"
    ):
        call()
