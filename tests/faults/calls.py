"""Workers under load, one of which ends badly, again and again: `calls.py FOLDER KIND RUNS`.

This process has the modules and no threads; workers are forked from it. The two that survive go through all runs. Each
run they join a new job with a new third worker, whose number is another one each time; it is KILLED, RAISES an
exception that nobody handles, or LEAVES without `shutdown`, at a random moment. They print what they have seen.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import signal
import sys
import threading
import time

import weft as torch
from tests.distributed.rpc.leaks import left_in_the_end
from tests.distributed.rpc.load import Load, hold, twice
from weft.distributed import autograd, rpc

SECONDS = 60.0  # in which all must come to an end
SIZE = 3


def tell(said):
    os.write(1, json.dumps(said).encode() + b"\n")  # in one piece, as others write there


def join(folder, run, rank):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/{run}", rpc_timeout=SECONDS)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=SIZE, rpc_backend_options=options)
    return Load([f"w{other}" for other in range(SIZE) if other != rank], f"{run} {rank}")


def held():
    """What this process holds between two runs."""
    with open("/proc/self/maps") as maps:
        shared = sum("memfd:" in line or "/dev/shm" in line for line in maps)
    with open("/proc/self/statm") as sizes:
        pages = int(sizes.read().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared": shared,
        "megabytes": pages * 4096 >> 20,
        "threads": [thread.name for thread in threading.enumerate() if "rpc" in thread.name],
    }


def survive(folder, run, rank, victim):
    """One run of a worker that goes on; returns what went wrong, and what is held afterwards."""
    load = join(folder, run, rank)
    lost, wrongs, end = f"w{victim}", load.wrongs, time.monotonic() + SECONDS
    while lost not in load.errors and not wrongs and time.monotonic() < end:
        time.sleep(0.001)
    if lost not in load.errors:
        wrongs.append(f"the loss was not noticed: {load.errors}")
    if not load.stop(SECONDS):
        wrongs.append("a call hangs")
    rounds = load.rounds
    del load
    if found := left_in_the_end(seconds=SECONDS):
        wrongs.append(f"left: {found}")
    start = time.monotonic()
    try:
        rpc.shutdown(timeout=SECONDS)
        wrongs.append("shutdown does not say who is missing")
    except RuntimeError as error:
        if not re.fullmatch(
            rf"shutdown: worker {lost} ended without completing shutdown\(\); the others are done", str(error)
        ):
            wrongs.append(f"shutdown: {error}")
    return {
        "process": os.getpid(),
        "run": run,
        "rank": rank,
        "wrongs": wrongs,
        "rounds": rounds,
        "shutdown": time.monotonic() - start,
        **held(),
    }


def end_badly(folder, run, rank, kind, chance):
    load = join(folder, run, rank)
    while load.rounds < 4:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.1))
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    load.stop(SECONDS)  # threads of its own that compute break the interpreter's end; those that serve others do not
    begun = [rpc.remote(rpc.get_worker_info(f"w{other}"), hold, (run,)) for other in range(SIZE) if other != rank]
    with autograd.context():
        begun.append(rpc.rpc_async(begun[0].owner(), twice, (torch.ones(2, requires_grad=True),)))
        if kind == "raises":
            raise ArithmeticError("nobody handles this")


def survivor(folder, number, orders):
    for line in orders:
        run, victim = map(int, line.split())
        rank = [rank for rank in range(SIZE) if rank != victim][number]
        tell(survive(folder, run, rank, victim))


def main():
    faulthandler.enable()
    folder, kind, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    orders = []
    for number in range(SIZE - 1):
        source, sink = os.pipe()
        if not os.fork():
            os.close(sink)
            for other in orders:
                other.close()
            survivor(folder, number, os.fdopen(source))
            return
        os.close(source)
        orders.append(os.fdopen(sink, "w"))
    chance = random.Random(kind)
    for run in range(runs):
        victim = run % SIZE
        pid = os.fork()
        if not pid:
            for order in orders:
                order.close()
            os.dup2(os.open(f"{folder}/victim.{run}", os.O_CREAT | os.O_WRONLY), 2)
            end_badly(folder, run, victim, kind, chance)
            return
        for order in orders:
            print(run, victim, file=order, flush=True)
        chance.random()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tell({"run": run, "status": status})
        sys.stdin.readline()  # both have told of the run
    for order in orders:
        order.close()
    for _ in orders:
        os.wait()


if __name__ == "__main__":
    main()
