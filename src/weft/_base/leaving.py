"""What a process does at its end so that no other one waits for it: it leaves groups and jobs.

A program that goes on after what others take part in, such as one that reports on a script, does so earlier.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

# no cell: read when the process ends
_leaves: list[Callable[[], object]] = []


def leave_at_exit(leave: Callable[[], object]) -> None:
    """Have `leave` called at the end of the process, or by an earlier `leave_all`."""
    if leave not in _leaves:
        _leaves.append(leave)
        atexit.register(leave)


def forget(leave: Callable[[], object]) -> None:
    """Undo `leave_at_exit`."""
    if leave in _leaves:
        _leaves.remove(leave)
        atexit.unregister(leave)


def leave_all() -> None:
    """Do now what would be done at the end of the process."""
    for leave in reversed(_leaves.copy()):
        forget(leave)
        leave()


def _forget_all() -> None:
    for leave in _leaves.copy():
        forget(leave)


os.register_at_fork(after_in_child=_forget_all)  # what a process has joined is not left by its child
