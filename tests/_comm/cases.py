"""What ranks do in tests, be they threads or processes. Each case checks itself against NumPy."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from tests._comm.peers import main
from tests.distributed.processes import serve
from weft._comm.deadline import Deadline
from weft._comm.groups.reductions import REDUCTIONS
from weft.errors import DistBackendError

WHOLE = [np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64")]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
SHORT = [np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
COMPLEX = [np.dtype(name) for name in ("complex64", "complex128")]
DTYPES = WHOLE + FLOATS + SHORT + COMPLEX
SIZES = (0, 1, 37, 20_000)
LONG = (2 << 20) + 3  # elements of float32: three chunks, the last one short
FACTOR = 3


def data(rank, size, dtype, salt=0):
    """Small whole numbers, other ones for each rank; long arrays repeat themselves after a prime number."""
    numbers = np.random.default_rng([rank, size, salt]).integers(0, 4, min(size, 9973))
    return np.resize(numbers.astype(dtype), size)


def defined(reduction, dtype):
    if reduction in {"band", "bor", "bxor"}:
        return dtype.kind in "iub"
    return not (reduction in {"min", "max"} and dtype.kind == "c")


def reduced(reduction, parts):
    """The reduction by NumPy, rounded once."""
    dtype = parts[0].dtype
    wide = np.float32 if dtype.itemsize <= 2 and dtype.kind in "fV" else dtype
    table = np.stack(parts).astype(wide)
    if reduction in {"sum", "avg", "premul_sum"}:
        total = table.sum(0, dtype=wide)
        if reduction == "avg" and dtype.kind != "b":
            total = np.trunc(total / len(parts)) if dtype.kind in "iu" else total / len(parts)
        return total.astype(dtype)
    whole = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}
    bits = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
    return (whole | bits)[reduction].reduce(table, 0, dtype=wide).astype(dtype)


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes(), (found, expected)


def reductions(here, dtypes=DTYPES, sizes=SIZES, kinds=REDUCTIONS):
    """all_reduce, reduce and reduce_scatter, into another array and in place."""
    for dtype, size, reduction in [(d, s, r) for d in dtypes for s in sizes for r in kinds if defined(r, d)]:
        factor = FACTOR if reduction == "premul_sum" else None
        parts = [data(rank, size, dtype) for rank in range(here.size)]
        scaled = parts if factor is None else [(part * np.array(factor, dtype)).astype(dtype) for part in parts]
        expected = reduced(reduction, scaled)
        ours, out = parts[here.rank], np.empty(size, dtype)
        here.collectives.all_reduce(ours, out, reduction, here.deadline, factor=factor)
        same(out, expected)
        root = size % here.size
        here.collectives.reduce(ours, out if here.rank == root else None, root, reduction, here.deadline, factor=factor)
        same(ours, data(here.rank, size, dtype))
        blocks = [data(here.rank, size, dtype, salt=block) for block in range(here.size)]
        here.collectives.reduce_scatter(blocks, blocks[here.rank], reduction, here.deadline, factor=factor)
        parts = [data(rank, size, dtype, salt=here.rank) for rank in range(here.size)]
        scaled = parts if factor is None else [(part * np.array(factor, dtype)).astype(dtype) for part in parts]
        same(blocks[here.rank], reduced(reduction, scaled))
        here.collectives.all_reduce(ours, ours, reduction, here.deadline, factor=factor)
        same(ours, expected)


def movements(here, dtypes=DTYPES, sizes=SIZES):
    """broadcast, gather, scatter, all_gather and all_to_all."""
    c, me, ranks, deadline = here.collectives, here.rank, range(here.size), here.deadline
    for dtype, size in [(d, s) for d in dtypes for s in sizes]:
        root = size % here.size
        parts = [data(rank, size, dtype) for rank in ranks]
        array = parts[me].copy()
        c.broadcast(array, root, deadline)
        same(array, parts[root])
        outs = [np.empty(size, dtype) for _ in ranks]
        c.all_gather(parts[me], outs, deadline)
        same(np.stack(outs), np.stack(parts))
        table = np.zeros((here.size, size), dtype)
        table[me] = parts[me]
        c.all_gather(table[me], list(table), deadline)  # in place
        same(table, np.stack(parts))
        outs = [np.empty(size, dtype) for _ in ranks]
        c.gather(parts[me], outs if me == root else None, root, deadline)
        if me == root:
            same(np.stack(outs), np.stack(parts))
        out = np.empty(size, dtype)
        c.scatter(parts if me == root else None, out, root, deadline)
        same(out, parts[me])
        exchange(here, dtype, size)
    c.barrier(deadline)


def exchange(here, dtype, size):
    """all_to_all of parts of different sizes, into other arrays and in place."""
    me, ranks = here.rank, range(here.size)

    def part(source, target):
        return data(source, (source + 2 * target) * size // 2, dtype, salt=target)

    sources = [part(me, rank) for rank in ranks]
    outs = [np.empty_like(part(rank, me)) for rank in ranks]
    here.collectives.all_to_all(sources, outs, here.deadline)
    for rank in ranks:
        same(outs[rank], part(rank, me))
    table = np.stack([data(me, size, dtype, salt=rank) for rank in ranks])
    here.collectives.all_to_all(list(table), list(table), here.deadline)
    same(table, np.stack([data(rank, size, dtype, salt=me) for rank in ranks]))


def messages(here):
    """Sends and receives in any order, of any size, by tag and from any rank."""
    m, me, ranks = here.messages, here.rank, range(here.size)
    sizes = (0, 1, 1000, 700_000)  # the last one is longer than a ring
    sends = [m.send(data(me, size, "f4", salt=rank), rank, tag) for rank in ranks for tag, size in enumerate(sizes)]
    outs = {(rank, tag): np.empty(size, "f4") for rank in reversed(ranks) for tag, size in enumerate(sizes)}
    waiting = [m.receive(outs[key], key[0], key[1]) for key in sorted(outs, key=lambda k: (-k[1], k[0]))]
    for request in (*waiting, *sends):
        m.wait(request, here.deadline)
    for (rank, tag), out in outs.items():
        same(out, data(rank, sizes[tag], "f4", salt=me))
    later(here)
    nobody_asked(here)


def later(here):
    """Unexpected messages of one tag keep their order; a receive from any rank tells who it was."""
    m, me = here.messages, here.rank
    for number in range(3):
        m.wait(m.send(np.full(2, 10 * me + number), 0, tag=7), here.deadline)
    here.collectives.barrier(here.deadline)
    if me == 0:
        seen = {rank: [] for rank in range(here.size)}
        for _ in range(3 * here.size):
            out = np.empty(2, np.int64)
            request = m.receive(out, None, tag=7)
            m.wait(request, here.deadline)
            seen[request.peer].append(out[0])
        assert seen == {rank: [10 * rank, 10 * rank + 1, 10 * rank + 2] for rank in range(here.size)}


def nobody_asked(here):
    """A collective moves messages that are under way, so nobody need wait for a send first."""
    m, me, other = here.messages, here.rank, (here.rank + 1) % here.size
    ours = np.arange(1 << 20)
    request = m.send(ours + me, other, tag=1)
    if me % 2:
        here.collectives.barrier(here.deadline)
    out = np.empty_like(ours)
    m.wait(m.receive(out, (me - 1) % here.size, tag=1), here.deadline)
    if not me % 2:
        here.collectives.barrier(here.deadline)
    same(out, ours + (me - 1) % here.size)
    m.wait(request, here.deadline)


def long_arrays(here):
    """Several chunks."""
    movements(here, [np.dtype(np.float32)], [LONG])
    reductions(here, [np.dtype(np.float32), SHORT[0]], [LONG], ["sum"])


def small_movements(here):
    movements(here, sizes=[0, 37])


def small_reductions(here):
    reductions(here, sizes=[37])


PROCESSES = (small_movements, small_reductions, messages, long_arrays)


def served(here):
    """Ranks that run cases together, and leave no descriptor open."""
    serve(f"rank {here.rank}", {case.__name__: partial(case, here) for case in PROCESSES})
    here.collectives.barrier(here.deadline)
    here.close()
    assert open_files() == []


def open_files():
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and ours(fd))


def ours(fd):
    path = f"/proc/self/fd/{fd}"
    return os.path.lexists(path) and ("memfd" in os.readlink(path) or "pidfd" in os.readlink(path))


def call(here, operation, deadline):
    """One operation of each kind, on arrays that need several phases."""
    c, m, ranks, root = here.collectives, here.messages, range(here.size), 0
    x = np.ones(3 << 20, np.float32)
    many = [x.copy() for _ in ranks]
    other = (here.rank + 1) % here.size
    {
        "all_reduce": lambda: c.all_reduce(x, x, "sum", deadline),
        "reduce": lambda: c.reduce(x, x, root, "sum", deadline),
        "reduce_scatter": lambda: c.reduce_scatter(many, x, "sum", deadline),
        "broadcast": lambda: c.broadcast(x, root, deadline),
        "all_gather": lambda: c.all_gather(x, many, deadline),
        "gather": lambda: c.gather(x, many, root, deadline),
        "scatter": lambda: c.scatter(many, x, root, deadline),
        "all_to_all": lambda: c.all_to_all(many, [y.copy() for y in many], deadline),
        "barrier": lambda: c.barrier(deadline),
        "send": lambda: m.wait(m.send(x, other), deadline),
        "receive": lambda: m.wait(m.receive(x, other), deadline),
        "receive from any": lambda: m.wait(m.receive(x, None), deadline),
    }[operation]()


OPERATIONS = ["all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter"]
OPERATIONS += ["all_to_all", "barrier"]
MESSAGES = ["send", "receive", "receive from any"]


def endless(here, operation, path, seconds):
    """Repeat an operation until a peer is lost, and tell why it failed."""
    deadline = Deadline(float(seconds))
    try:
        if operation in OPERATIONS:
            call(here, operation, deadline)
        here.collectives.barrier(deadline)
        Path(path, f"ready{here.rank}").touch()
        if operation in MESSAGES and here.rank == here.size - 1:
            sys.stdin.read()  # take no part, until killed
        while True:
            call(here, operation, Deadline(float(seconds)))
    except DistBackendError as error:
        print(error)
        try:
            call(here, "barrier", Deadline(60))
        except DistBackendError as again:
            print(again)


def stopping(here, path):
    """The last rank stops itself before it takes part."""
    Path(path, f"ready{here.rank}").touch()
    if here.rank == here.size - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    x = np.ones(4)
    here.collectives.all_reduce(x, x, "sum", here.deadline)
    print(x[0])


CASES = {"served": served, "endless": endless, "stopping": stopping}

if __name__ == "__main__":
    main(CASES)
