"""On how many threads the first tier computes. XLA's programs have a pool of their own, which cannot be changed."""

from __future__ import annotations

from weft._base.threads import INITIAL_THREADS
from weft._lazy.native import native

__all__ = ["set_threads", "threads"]

_count = INITIAL_THREADS  # no cell: how many threads compute changes no bit


def threads() -> int:
    """The number of threads: as it was set, or `OMP_NUM_THREADS` at the start, or one for each CPU."""
    return _count


def set_threads(count: int) -> None:
    """Compute on at most `count` threads of the first tier, the caller's included."""
    global _count
    _count = count
    if native is not None:
        native.set_threads(count)
