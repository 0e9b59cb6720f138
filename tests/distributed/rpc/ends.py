"""Workers that are told what to do, and may be killed or stopped at any time: `ends.py DESCRIPTOR`.

This process has the modules and no threads. By the socket of that descriptor it is sent those of workers to be, which
it forks, and asked to wait for their ends. A worker reads orders from its own socket, a line each, and says what came
of them; when there are no more it ends as any program does.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from queue import SimpleQueue

import numpy as np

import weft as torch
from tests.distributed.rpc import job
from weft._comm.shared_memory import loans
from weft.distributed.rpc import api as rpc  # as a whole, before workers are forked

SECONDS = 60.0  # in which whatever is waited for must come
LONG = 100 << 20  # bytes of the tensors that are on their way when somebody dies
_SIZE = 1 << 16  # of a message

# --- functions that workers call ---

_entered = threading.Semaphore(0)
_opened = threading.Event()
_totals = SimpleQueue()


def same(x):
    return x


def stay(x):
    """Wait for `open_gate`."""
    _entered.release()
    assert _opened.wait(SECONDS)
    return x


def total(x):
    """The same, with a tensor that is read after that."""
    _totals.put(stay(x).sum().item())


def next_total():
    return _totals.get(timeout=SECONDS)


def until_entered():
    """Return when a function waits for the gate."""
    assert _entered.acquire(timeout=SECONDS)


def open_gate():
    _opened.set()


def long_tensor():
    return torch.ones(LONG // 4)


# --- orders ---

_begun = []
_held_before = {}
_made = []


def join(rank, size, address, transports):
    _held_before.update(held(), bytes=own_bytes())
    job.join(rank, size, address, rpc_timeout=SECONDS, _transports=transports)


def make():
    """Make a long tensor, to be sent."""
    _made.append(torch.ones(LONG // 4))
    assert _made[0].sum().item() == LONG // 4


def begin(to, function, *args):
    """Begin a call; `await_answer` is for the one that began first."""
    _begun.append(rpc.rpc_async(to, globals()[function], args))


def send(to, function):
    """The same with the long tensor, which is given up."""
    begin(to, function, _made.pop())


def stop_in_copies():
    """From now on, stop this process when half of a long tensor has been copied to shared memory."""

    def copy_half(target, data):
        half = len(data) // 2
        np.copyto(target[:half], data[:half])
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()  # a thread goes on for a moment when another one has taken the signal

    loans._copy = copy_half


def await_answer():
    answer = _begun.pop(0).wait()
    return answer if not isinstance(answer, torch.Tensor) else answer.sum().item()


def call(to, function, *args):
    return rpc.rpc_sync(to, globals()[function], args)


def shutdown(timeout):
    """Leave; returns how long that took, and what was raised."""
    start, said = time.monotonic(), None
    try:
        rpc.shutdown(timeout=timeout)
    except RuntimeError as error:
        said = str(error)
    return time.monotonic() - start, said


def held():
    """What this process holds that others may see or that takes much: threads, descriptors, and memory."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        memory = [line.split()[5] for line in maps if "(deleted)" in line or "/dev/shm" in line]
    descriptors = [target for one in os.listdir("/proc/self/fd") if (target := _target(one)) is not None]
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "descriptors": descriptors,
        "memory": memory,
    }


def _target(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return None  # that of the listing


def own_bytes():
    """Memory of this process that is no one else's."""
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def tensor_is_freed():
    """Whether the memory of the long tensor is given up in time."""
    end = time.monotonic() + SECONDS / 2
    while not (freed := own_bytes() < _held_before["bytes"] - LONG / 2) and time.monotonic() < end:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is not held by anybody
    return freed


def left(*kinds):
    """What is held that was not before joining, as far as it does not go in time."""
    end = time.monotonic() + SECONDS
    while True:
        now = held()
        found = {kind: _added(_held_before[kind], now[kind]) for kind in kinds}
        if not any(found.values()) or time.monotonic() > end:
            return {kind: added for kind, added in found.items() if added}


def _added(before, now):
    rest = list(now)
    for one in before:
        if one in rest:
            rest.remove(one)
    return rest


ORDERS = {
    one.__name__: one
    for one in (join, make, begin, send, stop_in_copies, await_answer, call, shutdown, left, tensor_is_freed)
}


def obey(orders):
    with orders, orders.makefile("r") as heard, orders.makefile("w") as answers:
        for line in heard:
            what, *args = json.loads(line)
            try:
                said = {"value": ORDERS[what](*args)}
            except RuntimeError as error:
                said = {"error": str(error)}
            print(json.dumps(said), file=answers, flush=True)


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.freeze()  # workers share what is there, and need not look through it
    while True:
        asked, descriptors, *_ = socket.recv_fds(control, _SIZE, 2)
        if not asked:
            return
        if asked == b"fork":
            pid = os.fork()
            if not pid:
                control.close()
                os.dup2(descriptors[1], 2)
                os.close(descriptors[1])
                obey(socket.socket(fileno=descriptors[0]))
                return
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(b"%d" % pid)
        else:
            control.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(int(asked), 0)[1]))


if __name__ == "__main__":
    main()
