"""Workers that leave, or are killed, and join again under the same name, in a job that anybody may join."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest

import weft as torch
from tests.distributed.processes import ended, start
from tests.distributed.rpc import job
from weft.distributed import autograd, rpc
from weft.distributed.elastic.rendezvous.utils import free_port


def same(x):
    return x


def process():
    return os.getpid()


def onward(to):
    return rpc.rpc_sync(to, process)


_kept = []


def keep(ref):
    _kept.append(ref)


def kept():
    return _kept.pop().to_here()


class Member:
    def __init__(self, name, rank, address):
        self.process = start([sys.executable, "-m", "tests.distributed.rpc.test_rejoin", name, str(rank), address])
        self.joined()

    def joined(self):
        assert self.process.stdout.readline() == "joined\n", self.process.communicate()[1]

    def order(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()


@pytest.fixture
def members():
    """Starts members of a job of which this process is the first worker."""
    address, made = f"tcp://127.0.0.1:{free_port()}", []
    options = rpc.TensorPipeRpcBackendOptions(init_method=address, rpc_timeout=30)
    rpc.init_rpc("w0", rank=0, rpc_backend_options=options)

    def begin(name, rank=-1):
        made.append(Member(name, rank, address))
        return made[-1]

    yield begin
    for one in made:
        if one.process.poll() is None:
            one.order("end")
    said = ended([one.process for one in made])
    rpc.shutdown(timeout=30)
    gc.collect()  # the store goes with the last that has the agent
    assert {code for code, _, _ in said} <= {0, 1, -signal.SIGKILL}, said


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, pytest.param(-1, marks=pytest.mark.soak)])
def test_a_worker_that_was_killed_comes_again(members, rank):
    first, other = members("w1", rank), members("w2", 7)
    number = rpc.get_worker_info("w1")
    assert rpc.rpc_sync("w1", process) == rpc.rpc_sync("w2", onward, ("w1",)) == first.process.pid
    ref = rpc.remote("w1", same, (5,))
    assert ref.to_here() == 5
    rpc.rpc_sync("w2", keep, (ref,))
    first.process.kill()
    first.process.wait()
    again = members("w1", rank)
    for to in ("w1", number, rpc.get_worker_info("w1")):
        assert rpc.rpc_sync(to, process) == again.process.pid
    assert rpc.rpc_sync("w2", onward, ("w1",)) == again.process.pid
    assert rpc.get_worker_info("w1").id == (1 if rank == 1 else number.id + 1)
    fresh = rpc.remote("w1", same, (6,))  # has the number that the old one had for its first value
    lost = r"name=w1\) has left the job; WorkerInfo\(id=0, name=w0\) cannot call it|name=w1\): its process has ended"
    with pytest.raises(RuntimeError, match=lost):
        ref.to_here()
    with pytest.raises(RuntimeError, match=lost):
        ref.rpc_sync().__add__(1)
    with pytest.raises(RuntimeError, match=r"worker w1 was lost|name=w1\)"):
        rpc.rpc_sync("w2", kept)
    assert fresh.to_here() == 6
    x = torch.ones(2, requires_grad=True)
    with autograd.context() as context:
        autograd.backward(context, [rpc.rpc_sync("w1", same, (x,)).sum()])
        assert autograd.get_gradients(context)[x].tolist() == [1, 1]
    assert other.process.poll() is None


@pytest.mark.slow
def test_a_worker_that_has_left_comes_again_in_the_same_process(members):
    first = members("w1")
    before = rpc.get_worker_info("w1")
    assert rpc.rpc_sync(before, same, (1,)) == 1
    first.order("again")
    first.joined()
    assert rpc.rpc_sync(before, same, (1,)) == rpc.rpc_sync("w1", same, (1,)) == 1
    first.order("end")
    assert ended([first.process]) == [(0, f"{job.PASSED}\n", "")]
    unknown = "^name:w0,rank:0 could not find destination name w1; known are w0; without a world_size workers join when"
    with pytest.raises(RuntimeError, match=unknown):
        rpc.rpc_sync("w1", same, (1,))


@pytest.mark.slow
def test_a_name_or_a_number_of_a_living_worker_is_refused(members, tmp_path):
    members("w1", 1)
    for name, rank, what in (("w1", 5, "name w1"), ("w9", 1, "rank 1")):
        with pytest.raises(AssertionError, match=rf"RPC worker {what} is not unique\. Worker 1 \(w1\) has it already"):
            members(name, rank)
    assert rpc.rpc_sync("w1", same, (1,)) == rpc.rpc_sync(1, same, (1,)) == 1
    with pytest.raises(RuntimeError, match="could not find destination id 5"):
        rpc.rpc_sync(5, same, (1,))


def main():
    name, rank, address = sys.argv[1:]
    order = "again"
    while order == "again":
        options = rpc.TensorPipeRpcBackendOptions(init_method=address, rpc_timeout=30)
        rpc.init_rpc(name, rank=int(rank), rpc_backend_options=options)
        print("joined", flush=True)
        order = sys.stdin.readline().strip()
        rpc.shutdown(timeout=30)
    print(job.PASSED, flush=True)


if __name__ == "__main__":
    main()
