"""Jobs of workers that call each other: `python -m MODULE PROGRAM RANK SIZE ADDRESS` is worker `wRANK` of one.

A program is a function of its module, which worker 0 runs; the others serve until it is done. Workers may also be
threads of one process.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping

from tests.distributed.processes import ended, start
from tests.distributed.rpc.leaks import nothing_is_left
from weft.distributed import rpc, run_threads

PASSED = "all checks passed"


def run(module, program, size, tmp_path):
    """Run a job and require that all of its workers end well."""
    for code, output, errors in ended(launched(module, program, size, tmp_path)):
        assert (code, output.splitlines()[-1:]) == (0, [PASSED]), errors


def run_in_threads(programs, program, size):
    """The same with threads as workers: no process is started."""
    logger = logging.getLogger("weft.distributed.rpc")
    level = logger.level

    def work(rank):
        rpc.init_rpc(f"w{rank}")
        if rank == 0:
            _run(programs[program], size)
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
    rpc.init_rpc(
        f"w{rank}",
        rank=int(rank),
        world_size=int(size),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=address, **options),
    )


def main(programs: Mapping[str, Callable[[], object]]):
    """A worker."""
    program, rank, size, address = sys.argv[1:]
    join(rank, size, address)
    if rank == "0":
        _run(programs[program], int(size))
    rpc.shutdown()
    print(PASSED, flush=True)


def _run(program, size):
    program()
    nothing_is_left(*(f"w{number}" for number in range(1, size)))
