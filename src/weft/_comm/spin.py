"""Busy waiting."""

from __future__ import annotations

import os
from collections.abc import Callable

_TURNS = 300


def spin(ready: Callable[[], object]) -> bool:
    """Whether `ready()` becomes true within 300 attempts.

    Each attempt yields the core. Sleeping and waking up would take longer than an answer that is on its way.
    """
    for _ in range(_TURNS):
        if ready():
            return True
        os.sched_yield()
    return False
