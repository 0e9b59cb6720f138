"""A barrier whose errors name the missing ranks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from weft.errors import DistBackendError

_LATER = timedelta(seconds=5)  # how much longer than the first rank, which names the missing ones, the others wait


class HasBarrier(Protocol):
    """A backend of a group, as far as a barrier needs it."""

    rank: int
    timeout: timedelta

    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        """Return once all ranks have called this."""
        ...


def pass_barrier(
    backend: HasBarrier,
    ranks: Sequence[int],
    timeout: timedelta | None = None,
    *,
    wait_all_ranks: bool = False,
    operation: str = "monitored_barrier",
) -> None:
    """Return once all ranks have called this for the same `operation`. `ranks` are those of the job.

    `timeout`, by default the group's, is that of the group's first rank. Its error names the first missing rank, or all
    of them with `wait_all_ranks`. The other ranks wait longer, so that none of them fails earlier.
    """
    first, limit = backend.rank == 0, backend.timeout if timeout is None else timeout
    try:
        backend.barrier(limit if first else max(limit, backend.timeout) + _LATER, operation)
    except DistBackendError as error:
        if not error.missing:  # nobody is missing: ranks have called different operations
            raise
        text = _missing_text(error.missing, limit, wait_all_ranks) if first else _other_rank_text(ranks)
        failure = DistBackendError(f"{text.format(rank=ranks[backend.rank])}\n{error}")
        failure.missing = error.missing
        raise failure from None


def _missing_text(missing: Sequence[int], limit: timedelta, wait_all_ranks: bool) -> str:
    milliseconds = f"{round(1000 * limit.total_seconds())} ms"
    if limit <= timedelta(0) and not wait_all_ranks:
        return f"Rank {{rank}} timed out in monitoredBarrier after {milliseconds}."
    names = f"Ranks {', '.join(map(str, sorted(missing)))}" if wait_all_ranks else f"Rank {min(missing)}"
    return f"[Rank {{rank}}]: {names} failed to pass monitoredBarrier in {milliseconds}"


def _other_rank_text(ranks: Sequence[int]) -> str:
    return (
        "Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank "
        f"{ranks[0]}. Please check rank {ranks[0]} logs for faulty rank."
    )
