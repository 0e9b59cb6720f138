"""Locks in forked processes: another thread may have held one, and is not there to release it.

Stacked locks are taken from the upper module to the lower one, as calls go down. The hooks that are called before a
fork run last to first, so those of upper modules, which are imported later, run first: the same order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any


def hold_over_forks(lock: Any) -> None:
    """Let a fork wait for a reentrant lock, so that the child finds what it protects as a whole."""
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def renew_in_forks(module: dict[str, Any], name: str, new: Callable[[], Any] = threading.Lock) -> None:
    """Give a child a new lock, where what the lock protects may be left as it is; `module` has it under this name."""

    def renew() -> None:
        module[name] = new()

    os.register_at_fork(after_in_child=renew)
