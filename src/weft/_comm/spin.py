"""Busy waiting."""

from __future__ import annotations

import os
from collections.abc import Callable

_TURNS = 300


def spin(ready: Callable[[], object]) -> bool:
    """Whether `ready()` becomes true within 300 attempts.

    Sleeping and waking take many times as long as an answer that is on its way; each attempt yields the core.
    """
    for _ in range(_TURNS):
        if ready():
            return True
        os.sched_yield()
    return False
