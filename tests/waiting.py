"""Waiting for what others do, and what processes do."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep


def until(condition, what, seconds=60.0):
    """Wait for what has no event to wait for, and return what the condition gives; fails in time, telling what it was.

    `what` may be a function, which is called when it has not come.
    """
    end = monotonic() + seconds
    while not (value := condition()):
        assert monotonic() < end, f"waited {seconds:g} s in vain: {what() if callable(what) else what}"
        sleep(0.002)
    return value


def is_stopped(pid):
    """Whether all threads of a process have stopped."""
    return all(_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir())


def is_gone(pid):
    """Whether a process has ended, though nobody may have asked how."""
    try:
        return _state(Path(f"/proc/{pid}")) in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def nothing_left_in(folder):
    """What comes into a folder goes again. Tests that run meanwhile may put files there; theirs go when they end."""
    before = set(folder.iterdir())
    yield
    for path in set(folder.iterdir()) - before:
        until(lambda path=path: not path.exists(), f"{path} is left")


def _state(folder):
    return (folder / "stat").read_text().rpartition(") ")[2][0]
