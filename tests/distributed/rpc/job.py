"""Jobs of workers that call each other: `python -m MODULE PROGRAM RANK SIZE ADDRESS` is worker `wRANK` of one.

Worker 0 runs the program, and the others serve it. Cases that harm nobody share a job: its program is `cases`, and
worker 0 runs those that it is told to, after each of which nothing may be left. Workers may also be threads.
"""

from __future__ import annotations

import gc
import logging
import sys
from functools import partial

import pytest

from tests.distributed.processes import Job, ended, serve, start
from tests.distributed.rpc.leaks import nothing_is_left
from weft.distributed import rpc, run_threads

PASSED = "all checks passed"


def run(module, program, size, tmp_path):
    """Run a job and require that all of its workers end well."""
    for code, output, errors in ended(launched(module, program, size, tmp_path)):
        assert (code, output.splitlines()[-1:]) == (0, [PASSED]), errors


def shared(module, size, tmp_path_factory, *words, **environment):
    """The body of a fixture: a job for the cases of a module, and what else its workers are told."""

    def commands(folder):
        address = f"file://{folder}/store"
        return [[sys.executable, "-m", module, "cases", str(rank), str(size), address, *words] for rank in range(size)]

    made = Job(commands, 1, partial(tmp_path_factory.mktemp, "job"), **environment)
    yield made
    made.end()


def each(*cases, long=()):
    """A test of each case; the long ones are left to `make soak`."""
    return pytest.mark.parametrize("case", [*cases, *(pytest.param(case, marks=pytest.mark.soak) for case in long)])


def run_in_threads(case, size):
    """Run a case with threads as workers: no process is started."""
    logger = logging.getLogger("weft.distributed.rpc")
    level = logger.level

    def work(rank):
        rpc.init_rpc(f"w{rank}")
        if rank == 0:
            run_alone(case, size)
        rpc.shutdown()

    logger.setLevel(logging.CRITICAL)  # as in `join`
    try:
        run_threads(work, nprocs=size)
    finally:
        logger.setLevel(level)


def launched(module, program, size, tmp_path):
    """The processes of a job."""
    address = f"file://{tmp_path}/store"
    return [start([sys.executable, "-m", module, program, str(rank), str(size), address]) for rank in range(size)]


def join(rank, size, address, **options):
    """Become worker `wRANK`, which logs nothing of functions that fail: many do so on purpose."""
    logging.getLogger("weft.distributed.rpc").setLevel(logging.CRITICAL)
    gc.freeze()  # what is imported need not be looked through each time that nothing may be left
    rpc.init_rpc(
        f"w{rank}",
        rank=int(rank),
        world_size=int(size),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=address, **options),
    )


def main(cases, **programs):
    """A worker."""
    program, rank, size, address = sys.argv[1:]
    join(rank, size, address)
    if rank != "0":
        pass
    elif program == "cases":
        serve_cases(cases, int(size))
    else:
        programs[program]()
    rpc.shutdown()
    print(PASSED, flush=True)


def serve_cases(cases, size):
    """Be worker 0 of a job that tests share."""
    serve("w0", {case.__name__: partial(run_alone, case, size) for case in cases})


def run_alone(case, size):
    """Run a case of worker 0, and require that it leaves nothing to any worker."""
    case()
    nothing_is_left(*range(1, size))
