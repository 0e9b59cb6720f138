"""Exchanges of a fixed number of processes over a store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

from weft._comm.stores.store import Store
from weft.errors import DistStoreError, PreconditionError

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]


@contextmanager
def store_timeout(store: Store, timeout: float) -> Generator[None]:
    """Set the store's timeout, in seconds, within the block."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Store, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """The values of the keys `{prefix}{rank}` of all ranks, once all of them exist.

    Rank 0, which may serve the store, returns when all ranks have read them. Each prefix can be used once.
    """
    values = store.multi_get([f"{prefix}{peer}" for peer in range(world_size)])
    last = f"{prefix}/finished/last_member"
    if store.add(f"{prefix}/finished/num_members", 1) == world_size:
        store.set(last, "1")
    if rank == 0:
        store.wait([last])
    return values


def synchronize(
    store: Store, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300
) -> list[bytes]:
    """The `data` of all ranks, by rank; each step may take `timeout` seconds. Each prefix can be used once."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Store,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: float = 10,
) -> None:
    """Wait until `world_size` processes have called this, at most `barrier_timeout` seconds. A prefix can be used once.

    If all give their `rank`, the `DistStoreError` at the timeout names the missing ones, each as returned by
    `rank_tracing_decoder`. No further wait is needed for that, so `trace_timeout` has no effect.
    """
    del trace_timeout
    if rank is None and rank_tracing_decoder is not None:
        raise PreconditionError("Tracing requires rank information: give barrier() this process's rank as well")
    if rank is not None:
        # Written before anyone waits, so that those who time out can read who has not come without a further wait.
        store.set(f"{key_prefix}{rank}/TRACE", "1")
    try:
        store.barrier(key_prefix, world_size, timedelta(seconds=barrier_timeout))
    except DistStoreError as error:
        if rank is None:
            raise
        name = rank_tracing_decoder or str
        missing = [name(peer) for peer in range(world_size) if not store.check([f"{key_prefix}{peer}/TRACE"])]
        raise DistStoreError(
            f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} (world_size={world_size}, "
            f"missing_ranks=[{', '.join(missing)}], timeout={barrier_timeout})"
        ) from error
