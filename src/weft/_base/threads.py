"""How many threads a process may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

__all__ = ["INITIAL_THREADS", "cpus", "initial_threads"]


def cpus() -> int:
    """The number of CPUs on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def initial_threads(environment: Mapping[str, str]) -> int:
    """The number of threads for a process that starts with this environment."""
    # A launcher of several processes on one host sets the variable, so that they do not wait for each other's threads.
    with suppress(KeyError, ValueError):
        return max(1, int(environment["OMP_NUM_THREADS"]))
    return cpus()


INITIAL_THREADS = initial_threads(os.environ)
"""The number of threads with which this process has started, whatever it does to its environment later."""
