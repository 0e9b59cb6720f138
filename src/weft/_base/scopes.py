"""Named blocks of a program (`profiler.record_function`), and who is told of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

Begin = Callable[[str], Callable[[], None] | None]
"""Called with the name of a block that begins; returns what is to be called at its end."""


class _Thread(threading.local):
    observers: tuple[Begin, ...] = ()


# no cell: observers look on, and name what runs
_thread = _Thread()
# no cell: observers look on, and name what runs
_everywhere: list[Begin] = []


def observe_scopes(begin: Begin, *, everywhere: bool) -> Callable[[], None]:
    """Tell an observer of blocks that begin from now on, in all threads or in this one; returns what ends that."""
    if everywhere:
        _everywhere.append(begin)
    else:
        _thread.observers = (*_thread.observers, begin)

    def end() -> None:
        if everywhere:
            _everywhere.remove(begin)
        else:
            _thread.observers = tuple([other for other in _thread.observers if other is not begin])

    return end


def begin_scope(name: str) -> list[Callable[[], None]]:
    """Tell observers of a block that begins; returns what is to be called at its end, in this order."""
    begun = [begin(name) for begin in (*_everywhere, *_thread.observers)]
    return [end for end in reversed(begun) if end is not None]
