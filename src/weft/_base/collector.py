"""Stretches in which the garbage collector does not run, and so no finalizer of a user's.

A finalizer may use tensors as any code may. It must not run while a graph is numbered, whose numbers it would use for
its own; nor while jax traces a function, which refuses to trace the same function within. Objects without reference
cycles are not concerned: what these stretches drop is their own.
"""

from __future__ import annotations

import gc
import threading


class _Pause:
    """What `collector_paused` is the only one of. Threads may overlap: the collector runs again when all have left."""

    __slots__ = ("_lock", "_threads", "_was_enabled")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if not self._was_enabled:
                return
            if not self._threads:
                gc.enable()
                return
        # Threads that take turns could keep the collector out for ever. A thread that leaves can run it at any time.
        due = [
            n for n, (count, most) in enumerate(zip(gc.get_count(), gc.get_threshold(), strict=True)) if count > most
        ]
        if due:
            gc.collect(due[-1])


# no cell: results do not depend on when garbage is collected
collector_paused = _Pause()
"""`with collector_paused:` is a block, a short one, in which the collector does not run."""
