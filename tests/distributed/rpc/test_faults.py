"""Workers that end, stop or never come."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.distributed.processes import ended
from tests.distributed.rpc import job
from tests.waiting import is_stopped, until
from weft.distributed import rpc


def nap(seconds):
    time.sleep(seconds)
    return seconds


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def refer():
    return rpc.RRef(1)


def forks():
    return rpc.debug_info()["num_forks"]


_kept = []


def keep(ref):
    _kept.append(ref)


def killed():
    """A worker that is killed fails its own calls, at once, and no others."""
    lost = r"worker w1 was lost while w0 waited for it: it has closed the connection"
    begun, other = rpc.rpc_async("w1", nap, (100,)), rpc.rpc_async("w2", nap, (0.5,))
    ref, of_other = rpc.rpc_sync("w1", refer), rpc.remote("w2", nap, (0,))
    rpc.rpc_sync("w1", keep, (of_other,))
    until(lambda: rpc.rpc_sync("w2", forks) == 2, "w2 has not heard of the second fork from w1")
    with pytest.raises(RuntimeError, match=lost):
        rpc.rpc_sync("w1", die)
    with pytest.raises(RuntimeError, match=lost):
        begun.wait()
    assert other.wait() == 0.5
    with pytest.raises(RuntimeError, match=r"cannot reach WorkerInfo\(id=1, name=w1\): its process has ended"):
        rpc.rpc_sync("w1", nap, (0,))
    with pytest.raises(RuntimeError, match="cannot reach"):
        ref.to_here()
    until(lambda: rpc.rpc_sync("w2", forks) == 1, "what the dead one held is not reclaimed")
    assert of_other.to_here() == 0


def leaves():
    """Nothing; worker 1 ends without `shutdown`."""


def raises():
    """Nothing; worker 1 ends by an exception."""


def stop(number):
    """Stop a process; its threads go on for a moment."""
    os.kill(number, signal.SIGSTOP)
    until(lambda: is_stopped(number), f"process {number} does not stop")


def stopped():
    """A worker that is stopped is late, and nobody hangs."""
    number = rpc.rpc_sync("w1", os.getpid)
    stop(number)
    try:
        with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
            rpc.rpc_sync("w1", nap, (0,), timeout=0.5)
        assert rpc.rpc_sync("w2", nap, (0,)) == 0
        with pytest.raises(
            RuntimeError, match=r"^shutdown: WorkerInfo\(id=0, name=w0\) waited 1 s for the other workers"
        ):
            rpc.shutdown(timeout=1)
    finally:
        os.kill(number, signal.SIGKILL)
    print(job.PASSED, flush=True)
    sys.exit()


ENDS = {
    "killed": (-signal.SIGKILL, "w1"),
    "leaves": (0, "w1"),
    "raises": (3, "w1"),
    "stopped": (-signal.SIGKILL, "w0, w1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", ENDS)
def test_a_worker_that_fails_harms_nobody_else(program, tmp_path):
    code, lost = ENDS[program]
    said = ended(job.launched("tests.distributed.rpc.test_faults", program, 3, tmp_path))
    assert said[1][0] == code, said[1]
    for rank in (0, 2):
        assert said[rank][:2] == (0, f"{job.PASSED}\n"), said[rank][2]
        if (program, rank) != ("stopped", 0):
            assert said[rank][2].endswith(
                f"shutdown: worker {lost} ended without completing shutdown(); the others are done\n"
            )


def main():
    program, rank, size, address = sys.argv[1:]
    job.join(rank, size, address)
    if rank == "0":
        {one.__name__: one for one in (killed, leaves, raises, stopped)}[program]()
    if (program, rank) == ("leaves", "1"):
        return
    if (program, rank) == ("raises", "1"):
        sys.exit(3)
    try:
        rpc.shutdown()
    except RuntimeError as error:
        print(error, file=sys.stderr)
    print(job.PASSED, flush=True)


if __name__ == "__main__":
    main()
