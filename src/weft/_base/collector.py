"""Stretches in which the garbage collector does not run, and so no finalizer of a user's, and no thread forks.

A finalizer may use tensors as any code may. It must not run while a graph is numbered, whose numbers it would use for
its own; nor while jax traces a function, which refuses to trace the same function within. Objects without reference
cycles are not concerned: what these stretches drop is their own.

A fork waits for the stretches of other threads. Within them jax holds locks of its own, some of which are no locks of
Python's: a child would trace its first function, and wait for ever for a thread that it has not got.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

_PATIENCE = 60.0  # seconds that a fork waits at most: longer than XLA compiles any program


class _Pause:
    """What `collector_paused` is the only one of. Threads may overlap: the collector runs again when all have left."""

    __slots__ = ("_changed", "_depths", "_forks", "_lock", "_was_enabled", "alone")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._depths: dict[int, int] = {}  # for each thread within, how many stretches it is in
        self._forks = False  # whether a thread waits to fork: others do not begin meanwhile, or it might wait for ever
        self._was_enabled = False
        self.alone: list[Callable[[], object]] = []  # called before a fork, once no other thread is within

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            if self._forks and thread not in self._depths:
                self._changed.wait_for(lambda: not self._forks, _PATIENCE)
            if not self._depths:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._depths[thread] = self._depths.get(thread, 0) + 1

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        with self._lock:
            depth = self._depths[thread] = self._depths[thread] - 1
            if not depth:
                del self._depths[thread]
                if self._forks:
                    self._changed.notify_all()
            if depth or not self._was_enabled:
                return  # within another stretch, still
            if not self._depths:
                gc.enable()
                return
        # Threads that take turns could keep the collector out for ever. A thread that leaves can run it at any time.
        due = [
            n for n, (count, most) in enumerate(zip(gc.get_count(), gc.get_threshold(), strict=True)) if count > most
        ]
        if due:
            gc.collect(due[-1])

    def before_fork(self) -> None:
        """Wait until no other thread is within, and let none begin."""
        thread = threading.get_ident()
        self._lock.acquire()
        self._forks = True
        self._changed.wait_for(lambda: not self._depths.keys() - {thread}, _PATIENCE)
        for function in self.alone:
            function()

    def after_fork_here(self) -> None:
        """Let threads go on."""
        self._forks = False
        self._changed.notify_all()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the threads that are not here."""
        thread = threading.get_ident()
        self._depths = {own: depth for own, depth in self._depths.items() if own == thread}
        if not self._depths and self._was_enabled:
            gc.enable()
        self._lock = threading.Lock()  # others may have waited at the former ones
        self._changed, self._forks = threading.Condition(self._lock), False


# no cell: results do not depend on when garbage is collected
collector_paused = _Pause()
"""`with collector_paused:` is a block, a short one, in which the collector does not run."""

os.register_at_fork(
    before=collector_paused.before_fork,
    after_in_parent=collector_paused.after_fork_here,
    after_in_child=collector_paused.after_fork_in_child,
)
