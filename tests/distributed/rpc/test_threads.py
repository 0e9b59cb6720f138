"""Workers that are threads of one process."""

from __future__ import annotations

import threading

import pytest

import weft as torch
from weft import distributed as dist
from weft._comm import tree
from weft.distributed import rpc, run_threads
from weft.distributed.rpc import _workers
from weft.distributed.rpc._state import current_agent


def who():
    return rpc.get_worker_info().name, dist.get_rank()


def later(x):
    """A callback of a call that this worker makes."""
    return rpc.rpc_async("w0", torch.add, (x, 1)).then(lambda done: (who(), done.value().item())).wait()


def test_a_function_runs_as_the_worker_that_is_called():
    def work(rank):
        dist.init_process_group("threads")
        rpc.init_rpc(f"w{rank}")
        said = [rpc.rpc_sync(f"w{peer}", who) for peer in range(3)], rpc.rpc_sync("w2", later, (torch.ones(()),))
        rpc.shutdown()
        return said

    everybody = [(f"w{rank}", rank) for rank in range(3)]
    assert run_threads(work, nprocs=3) == [(everybody, (("w2", 2), 2))] * 3


def test_names_ranks_and_sizes_may_be_given_and_workers_meet_again():
    def work(rank):
        for size in (2, 2):
            rpc.init_rpc(f"other{rank}", rank=1 - rank, world_size=size)
            assert rpc.rpc_sync(rank, rpc.get_worker_info).name == f"other{1 - rank}"
            rpc.shutdown()
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            rpc.get_worker_info()

    run_threads(work, nprocs=2)


_begun, _over = threading.Event(), threading.Event()


def wait():
    _begun.set()
    assert _over.wait(60)


def test_who_fails_is_lost_to_those_who_wait_for_it():
    said = []

    def work(rank):
        rpc.init_rpc(f"w{rank}")
        if rank == 1:
            assert _begun.wait(60)
            raise KeyError("the first error")
        with pytest.raises(RuntimeError, match="worker w1 was lost while w0 waited for it"):
            rpc.rpc_sync("w1", wait)
        _over.set()
        with pytest.raises(RuntimeError, match=r"cannot reach WorkerInfo\(id=1, name=w1\): its thread has left"):
            rpc.rpc_sync("w1", who)
        with pytest.raises(RuntimeError, match="worker w1 ended without completing"):
            rpc.shutdown()
        said.append("well")

    with pytest.raises(KeyError, match="the first error"):
        run_threads(work, nprocs=2)
    assert said == ["well"]


def test_who_does_not_shut_down_leaves_no_threads():
    run_threads(lambda rank: rpc.init_rpc(f"w{rank}"), nprocs=2)
    assert not [thread for thread in threading.enumerate() if "rpc" in thread.name]


def test_the_process_is_a_worker_of_its_own(tmp_path):
    """Beside threads that are workers of another job."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store")
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)

    def work(rank):
        rpc.init_rpc(f"w{rank}")
        names = [rpc.rpc_sync(name, rpc.get_worker_info).name for name in ("w0", "w1")]
        rpc.shutdown()
        return names

    assert run_threads(work, nprocs=2) == [["w0", "w1"]] * 2
    assert rpc.rpc_sync("alone", rpc.get_worker_info).name == "alone"
    rpc.shutdown()


def test_workers_of_a_big_job_look_each_other_up(monkeypatch):
    """They do not learn of all at once, and leave through a tree of several levels."""
    monkeypatch.setattr(_workers, "_LEARN_AT_ONCE", 4)
    monkeypatch.setattr(tree, "FAN_OUT", 2)

    def work(rank):
        rpc.init_rpc(f"w{rank}")
        name = rpc.rpc_sync((rank + 7) % 20, rpc.get_worker_info).name
        everybody = [worker.name for worker in current_agent().get_worker_infos()] if rank == 3 else None
        rpc.shutdown(timeout=60)
        return name, everybody

    results = run_threads(work, nprocs=20)
    assert [name for name, _ in results] == [f"w{(rank + 7) % 20}" for rank in range(20)]
    assert results[3][1] == [f"w{rank}" for rank in range(20)]
