"""Groups connected by MPI: processes that `mpiexec` has started. They need the extra `mpi`."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Sequence
from datetime import timedelta

from weft._comm.deadline import Deadline
from weft._comm.groups import mpi
from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport.addresses import own_address
from weft.distributed._group_host import HostBackend
from weft.errors import DistBackendError, DistStoreError

_LONGEST_LEAVE = 60.0  # seconds for which a process waits for the others when it ends

atexit.register(mpi.finalize, _LONGEST_LEAVE)


def rendezvous(rank: int, world_size: int, timeout: timedelta) -> tuple[Store, int, int]:
    """A store shared by all processes of the job, this rank, and the world size; -1 stands for MPI's values."""
    mpi_rank, size = _checked_job(rank, world_size)
    if mpi_rank == 0:
        store = TCPStore("", 0, is_master=True, timeout=timeout, wait_for_workers=False)
        mpi.broadcast_text(json.dumps([own_address(), store.port]).encode(), Deadline(timeout.total_seconds()))
        return store, mpi_rank, size
    try:
        host, port = json.loads(mpi.broadcast_text(b"", Deadline(timeout.total_seconds())))
    except TimeoutError:
        raise DistBackendError(
            f"init_process_group: rank {mpi_rank} waited {timeout.total_seconds():g} s for rank 0 of {size}; look what "
            "it does, or allow more time"
        ) from None
    return TCPStore(host, port, is_master=False, timeout=timeout), mpi_rank, size


def _checked_job(rank: int, world_size: int) -> tuple[int, int]:
    """MPI's rank and number of processes, which must be equal to the given ones."""
    mpi_rank, size = mpi.job()
    expected = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", size))
    if expected != size or rank not in (-1, mpi_rank):
        wanted = f"{expected} processes are" if rank == -1 else f"rank {rank} of {expected} processes is"
        by_hand = " instead of `weft run`" if "TORCHELASTIC_RUN_ID" in os.environ else ""
        raise DistBackendError(
            f"backend mpi: this process is rank {mpi_rank} of {size} for MPI, but {wanted} expected; start the job by "
            f"`mpiexec -n {expected} python SCRIPT`{by_hand}, and leave rank and world_size to MPI"
        )
    return mpi_rank, size


def join(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> HostBackend:
    """The backend `mpi`."""
    mpi_rank, size = mpi.job()
    if mpi_rank != ranks[rank] or max(ranks) >= size:
        _checked_job(ranks[rank], max(ranks) + 1)
    store.set(keys.mpi(rank), b"here")  # MPI itself would wait for the others without a timeout
    entries = [keys.mpi(peer) for peer in range(len(ranks))]
    try:
        store.wait(entries, timeout)
    except DistStoreError as error:
        missing = ", ".join(str(one) for one, key in zip(ranks, entries, strict=True) if not store.check([key]))
        raise DistBackendError(
            f"joining the group: rank {ranks[rank]} waited {timeout.total_seconds():g} s for {missing}; look whether "
            "all members make the group"
        ) from error
    group, collectives = mpi.collectives(rank, ranks)
    return HostBackend("mpi", group, collectives, group.messages, timeout)
