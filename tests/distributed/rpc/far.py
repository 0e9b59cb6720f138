"""Cases of workers that reach each other by TCP: `python -m tests.distributed.rpc.far PROGRAM RANK SIZE ADDRESS`."""

from __future__ import annotations

import socket
import sys

import numpy as np
import pytest

import weft as torch
from tests.distributed.processes import Cases, in_threads
from tests.distributed.rpc import job
from tests.distributed.rpc.leaks import nothing_is_left
from tests.waiting import until
from weft.distributed import rpc
from weft.distributed.rpc._state import current_agent

case = Cases()
CUT = 1 << 16  # bytes from which on a buffer is cut
CHUNK = 512 << 10


def same(*x):
    return x


def lanes():
    """How many lanes the connection by which w0 calls has."""
    return max(len(pipe.lanes) for pipe in current_agent().peers._worker_at)


def numbers(size):
    return np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)


def await_lanes(count):
    """They are made beside the first calls."""
    until(lambda: lanes() == count, lambda: f"there are {lanes()} lanes and not {count}")


@case
def buffers_of_all_sizes_come_as_they_were():
    for size in (CUT - 1, CUT, CHUNK - 1, CHUNK, CHUNK + 1, 7 * CHUNK + 3):
        sent = numbers(size)
        (tensor,) = rpc.rpc_sync("w1", same, (torch.from_numpy(sent),))
        assert (tensor.numpy() == sent).all(), size


@case
def buffers_of_all_sizes_come_together():
    sent = [numbers(size) for size in (5, 3 * CHUNK, 100, CUT, 0, CHUNK)]
    for one, other in zip(rpc.rpc_sync("w1", same, tuple(sent)), sent, strict=True):
        assert (one == other).all()


@case
def a_connection_gets_three_lanes_and_keeps_no_part_of_a_buffer():
    rpc.rpc_sync("w1", same, (numbers(7 * CHUNK),))
    rpc.rpc_sync("w1", await_lanes, (3,))
    await_lanes(3)
    assert not current_agent().payloads._chunks._partial.get(current_agent().peers.outgoing()[0])


@case
def small_calls_of_several_threads_go_beside_long_ones():
    sent = numbers(64 * CHUNK)
    begun = [rpc.rpc_async("w1", same, (sent,)) for _ in range(3)]

    def call(thread):
        for number in range(50):
            assert rpc.rpc_sync("w1", same, (thread, number)) == (thread, number)

    in_threads(3, call)
    for future in begun:
        assert (future.wait()[0] == sent).all()


def cut_off():
    """A lane that is lost takes its connection along: what was on its way cannot come whole."""
    rpc.rpc_sync("w1", same, (numbers(CHUNK),))
    await_lanes(3)
    (pipe,) = current_agent().peers.outgoing()
    begun = rpc.rpc_async("w1", same, (numbers(64 * CHUNK),))
    pipe.lanes[1]._sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(RuntimeError, match="worker w1 was lost while w0 waited for it: it has closed the connection"):
        begun.wait()
    assert pipe.close_reason is not None
    assert not pipe.lanes
    assert rpc.rpc_sync("w1", same, (2,)) == (2,)  # it is reached again


if __name__ == "__main__":
    program, rank, size, address = sys.argv[1:]
    job.join(rank, size, address, _transports=["uv"])
    if program == "cut_off" and rank == "0":
        cut_off()
        nothing_is_left("w1")
    elif program == "cut_off":
        sys.stdin.read()  # worker 0 cannot tell that it is done
    elif rank == "0":
        job.serve_cases(case, int(size))
    rpc.shutdown(graceful=program != "cut_off")  # a worker whose connection is lost counts as ended
    print(job.PASSED, flush=True)
