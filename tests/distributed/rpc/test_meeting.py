"""How workers meet: one that may not come is told to those who wait, and what the environment says.

`python -m … NAME RANK SIZE ADDRESS` is a worker.
"""

from __future__ import annotations

import gc
import sys

import pytest

from tests.distributed.processes import ended, start
from weft._comm.stores.file_store import FileStore
from weft.distributed import rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc._state import current_agent

SAID = "init_rpc: "


def join(name, rank, size, address):
    options = rpc.TensorPipeRpcBackendOptions(init_method=address)
    rpc.init_rpc(name, rank=rank, world_size=size, rpc_backend_options=options)


def other(name, rank, size, address, **environment):
    return start([sys.executable, "-m", __name__, name, str(rank), str(size), address], **environment)


@pytest.fixture(autouse=True)
def no_store_left():
    """The store goes with the last that has the agent."""
    yield
    gc.collect()


def errors_of_both(mine, theirs, **environment):
    """What a worker here and another one say, neither of which can join: in any order, who failed and who waited."""
    process = other(*theirs, **environment)
    with pytest.raises(RuntimeError) as caught:
        join(*mine)
    [(code, said, errors)] = ended([process])
    assert code == 0, errors
    failed, waited = sorted([str(caught.value), said.strip()], key=lambda text: text.startswith(SAID))
    assert waited.startswith(SAID)
    assert waited.endswith(failed)
    return failed, waited


def test_a_name_that_is_taken_is_told_to_who_waits_and_the_next_start_is_well(tmp_path):
    address = f"file://{tmp_path}/store"
    failed, waited = errors_of_both(("w", 0, 3, address), ("w", 1, 3, address))
    assert failed.startswith("RPC worker name w is not unique. Worker ")
    assert " (w) has it already; give each worker its own name and rank" in failed
    assert "waited in vain: rank " in waited
    process = other("w1", 1, 2, address)
    join("w0", 0, 2, address)
    assert rpc.rpc_sync("w1", max, (3, 5)) == 5
    rpc.shutdown(timeout=60)
    assert ended([process])[0][0] == 0


def test_world_sizes_that_differ_are_told():
    address = f"tcp://127.0.0.1:{free_port()}"
    process = other("w1", 1, 2, address)
    differ = "rank 0 has world_size=3 and rank 1 world_size=2; give all the same"
    with pytest.raises(RuntimeError, match=f"^init_rpc: {differ}$"):
        join("w0", 0, 3, address)
    assert ended([process]) == [(0, f"init_rpc: rank 1 waited in vain: {differ}\n", "")]


def test_keys_that_differ_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of one job")
    store = FileStore(f"{tmp_path}/store", 1)
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
    with pytest.raises(RuntimeError, match=r"store' was not written with this job's key; give all processes of a job"):
        join("w0", 0, 2, f"file://{tmp_path}/store")
    store.close()


@pytest.mark.parametrize(("given", "size"), [({}, 1), ({"rank": 0}, None), ({"rank": 0, "world_size": 1}, 1)])
def test_the_environment_tells_rank_and_world_size_where_neither_is_given(given, size, monkeypatch):
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    rpc.init_rpc("w0", **given)
    try:
        assert (current_agent().size, rpc.get_worker_info().id) == (size, 0)
    finally:
        rpc.shutdown(timeout=20)


if __name__ == "__main__":
    name, rank, size, address = sys.argv[1:]
    try:
        join(name, int(rank), int(size), address)
        rpc.shutdown(timeout=60)
    except RuntimeError as error:
        print(error)
