"""On how many threads the first tier computes. XLA's programs have a pool of their own, which cannot be changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from weft._lazy.native import native

__all__ = ["cpus", "initial_threads", "set_threads", "threads"]


def cpus() -> int:
    """The number of CPUs on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The number of threads: as it was set, or `OMP_NUM_THREADS` at the start, or one for each CPU."""
    return _count


def set_threads(count: int) -> None:
    """Compute on at most `count` threads of the first tier, the caller's included."""
    global _count
    _count = count
    if native is not None:
        native.set_threads(count)


def initial_threads(environment: Mapping[str, str]) -> int:
    """The number of threads for a process that starts with this environment."""
    # A launcher of several processes on one host sets the variable, so that they do not wait for each other's threads.
    with suppress(KeyError, ValueError):
        return max(1, int(environment["OMP_NUM_THREADS"]))
    return cpus()


_count = 1
set_threads(initial_threads(os.environ))
