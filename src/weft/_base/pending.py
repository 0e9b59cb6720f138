"""The values that a thread has recorded and not computed yet, and who is shown which of them.

A watcher is shown every operator, or a sample of them. That costs nothing where nothing is shown: every recording
compares the length of its list with a limit, which is set to where the next operator is that somebody is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from weft._base.forks import renew_in_forks
from weft._base.types import Arg

LEAST_LIMIT = 1024


class Watcher(Protocol):
    """Is shown operators: their first outputs, when they have been recorded.

    distance  called for how many operators on the next one is that it is shown: 1 if it is shown all
    """

    distance: Callable[[], int]

    def show(self, value: Arg) -> None:
        """Look at an operator; must not raise."""
        ...


class _Watch:
    """A watcher of one list, and the position of the operator that it is shown next."""

    __slots__ = ("next", "watcher")

    def __init__(self, watcher: Watcher, next: int) -> None:
        self.watcher = watcher
        self.next = next


class Pending(list[Any]):
    """Values recorded in one thread and not computed yet, in order of recording.

    limit    length beyond which a recording calls `flushing.at_limit`: `room`, or where the next operator is shown
    room     length at which dead values are removed, and, if too many are alive, all are computed
    checks   checks recorded in this thread that had not been computed when it flushed last (`_lazy/checks.py`)
    unread   those that have been computed since, and whose outcome has not been read
    kept     whether the values stay pending at the end of a step, until one is needed
    branch   whether it may never run what is recorded, so that no check can be made at once
    marked   whether the program says itself where its steps end (`weft.xla`), so that an optimizer's step does not
    thread   the thread that records, by `threading.get_ident`
    within   whether a user's function records, which a running program has called
    when_computed   called by the next `flush_pending`, which computes what is in the list before

    What is recorded into a list that is not `watched` is shown to nobody.
    """

    __slots__ = (
        "__weakref__",
        "_watches",
        "branch",
        "checks",
        "kept",
        "limit",
        "marked",
        "room",
        "thread",
        "unread",
        "when_computed",
        "within",
    )

    def __init__(self, room: int = LEAST_LIMIT, *, watched: bool = True, within: bool = False) -> None:
        super().__init__()
        self.limit = self.room = room
        self.checks: list[Any] = []
        self.unread: list[Any] = []
        self.kept = False
        self.branch = False
        self.marked = False
        self.within = within
        self.when_computed: list[Callable[[], None]] = []
        self._watches: tuple[_Watch, ...] = ()
        self.thread = threading.get_ident()
        if watched:
            _lists[id(self)] = self
            for watcher in (*_everywhere, *_thread.watchers):
                self.begin(watcher)

    def absorb(self, region: Pending) -> None:
        """Append what was recorded in another list."""
        self.extend(region)
        self.checks.extend(region.checks)
        self.unread.extend(region.unread)
        self.when_computed.extend(region.when_computed)
        self.moved(len(region))

    def set_room(self, room: int) -> None:
        """Set the length at which room is made."""
        self.room = room
        self._set_limit()

    def moved(self, by: int) -> None:
        """Called when so many values have been added before what is recorded next, or (below zero) have been taken."""
        if self._watches:
            for watch in self._watches:
                watch.next = max(0, watch.next + by)  # below 0: begun by another thread between the move and this call
            self._set_limit()

    def show(self) -> None:
        """Show what has been recorded to those who are to see it."""
        while (position := self.limit) < len(self):
            watches, following = self._watches, self.room
            watchers: list[Watcher] = []
            for watch in watches:
                if watch.next == position:
                    watch.next = position + watch.watcher.distance()
                    watchers.append(watch.watcher)
                if watch.next < following:
                    following = watch.next
            self.limit = following
            if watches is not self._watches:  # another thread has begun or ended a watch
                self._set_limit()
            if not watchers:  # it is the room that ends here
                return
            value = self[position]
            if value.origin.index == 0:  # further outputs are no further operators
                for watcher in watchers:
                    watcher.show(value)

    def begin(self, watcher: Watcher) -> None:
        """Show what is recorded from now on to a watcher."""
        with _lock:
            self._watches = (*self._watches, _Watch(watcher, len(self) - 1 + watcher.distance()))
            self._set_limit()

    def end(self, watcher: Watcher) -> None:
        """Show it nothing more."""
        with _lock:
            self._watches = tuple([watch for watch in self._watches if watch.watcher is not watcher])
            self._set_limit()

    def _set_limit(self) -> None:
        self.limit = min([self.room, *[watch.next for watch in self._watches]])


class _Thread(threading.local):
    watchers: tuple[Watcher, ...] = ()


# no cell: watchers look on; a replay records by the same lists
_thread = _Thread()
# no cell: watchers look on; a replay records by the same lists
_everywhere: list[Watcher] = []
# no cell: watchers look on; a replay records by the same lists
_lists: WeakValueDictionary[int, Pending] = WeakValueDictionary()
_lock = threading.RLock()  # of those who begin and end
renew_in_forks(globals(), "_lock", threading.RLock)


def last_recorded(most: int = 6) -> list[str]:
    """What threads have recorded last and not computed yet, one text for each list of pending values."""
    texts: list[str] = []
    for pending in list(_lists.values()):
        if pending:
            last = ", ".join([repr(value.origin.signature) for value in pending[-most:]])
            texts.append(f"{len(pending)} operators recorded and not computed by thread {pending.thread:#x}: {last}")
    return texts


def watch(watcher: Watcher, *, everywhere: bool) -> Callable[[], None]:
    """Show a watcher what is recorded from now on, in all threads or in this one; returns what ends that."""
    thread = None if everywhere else threading.get_ident()
    if everywhere:
        _everywhere.append(watcher)
    else:
        _thread.watchers = (*_thread.watchers, watcher)
    for pending in list(_lists.values()):
        if thread in (None, pending.thread):
            pending.begin(watcher)

    def end() -> None:
        if everywhere:
            _everywhere.remove(watcher)
        else:
            _thread.watchers = tuple([other for other in _thread.watchers if other is not watcher])
        for pending in list(_lists.values()):
            pending.end(watcher)

    return end
