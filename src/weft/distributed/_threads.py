"""Ranks as threads of one process, so that a distributed program can be run in one debugger."""

from __future__ import annotations

import threading
from functools import partial

from weft._base.failing import report_failures_by
from weft._base.state import ambient, set_field
from weft._base.types import AnyCallable, Args, Result
from weft._comm.stores.store import HashStore
from weft._tensor.generator import default_generator
from weft.distributed._world import ThreadRank, destroy_process_group, is_initialized, set_thread_rank
from weft.distributed.rpc._state import RpcState, set_state
from weft.errors import ValueRangeError
from weft.multiprocessing._processes import require_calls


def run_threads(fn: AnyCallable, args: Args = (), nprocs: int = 2) -> list[Result]:
    """Call `fn(rank, *args)` in `nprocs` threads, each of which is a rank of one job; returns the results by rank.

    In these threads, `init_process_group("threads")` and `rpc.init_rpc` need no address, and random numbers are drawn
    separately. At its end, a thread destroys its groups and leaves the workers of remote calls. When all have ended,
    the first error is raised; the other ranks' operations have failed by then, too, because they miss a rank.
    """
    require_calls(args, nprocs)
    if nprocs < 1:
        raise ValueRangeError(f"nprocs must be at least 1, but got {nprocs}")
    store = HashStore()
    results: list[Result] = [None] * nprocs
    errors: dict[int, BaseException] = {}

    info = ambient().context.debug_info

    def report(rank: int, error: BaseException | None) -> None:
        """Keep the ranks' errors in the order in which they came."""
        if error is None:
            errors.pop(rank, None)
        else:
            errors.setdefault(rank, error)

    def run(rank: int) -> None:
        # Told when the failure happens, before this rank leaves its groups: the others fail because of that, and would
        # come first.
        report_failures_by(partial(report, rank))
        set_field(debug_info=info)
        state = RpcState()
        set_thread_rank(ThreadRank(rank, nprocs, store))
        set_state(state)
        # Threads share the process's generator; ranks that are processes each have their own.
        default_generator.separate()
        try:
            results[rank] = fn(rank, *args)
        except BaseException as error:
            report(rank, error)
        else:
            report(rank, None)
        finally:
            if is_initialized():
                destroy_process_group()
            state.close()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(nprocs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next(iter(errors.values()))
    return results
