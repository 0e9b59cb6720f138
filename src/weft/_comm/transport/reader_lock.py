"""A lock for the one of several waiting threads that reads for all."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock

Waiter = SimpleQueue[None]
"""A queue that a thread waits at; an item wakes it."""


class ReaderLock:
    """Held by one thread at a time. A thread that cannot have it may leave a waiter, which is woken when it is free."""

    __slots__ = ("_lock", "_waiters", "held", "missed")

    def __init__(self) -> None:
        self.missed = False
        """Whether a thread without a waiter has failed to take it, and relies on the holder to read for it."""
        self._lock = Lock()
        self.held = False
        self._waiters: dict[Waiter, None] = {}  # in the order of arrival

    def acquire(self, waiter: Waiter | None = None) -> bool:
        """Take the lock, if nobody has it."""
        with self._lock:
            if self.held:
                if waiter is None:
                    self.missed = True
                else:
                    self._waiters[waiter] = None
                return False
            self.held = True
            self._waiters.pop(waiter, None)  # pyright: ignore[reportArgumentType, reportCallIssue]  None is no key
            return True

    def release(self) -> bool:
        """Release the lock; returns whether a waiter was woken to take it."""
        with self._lock:
            self.held = False
            return self._wake()

    def withdraw(self, waiter: Waiter) -> bool:
        """Stop waiting. True if the lock is free and nobody will take it: this waiter was woken for it."""
        with self._lock:
            if waiter in self._waiters:
                del self._waiters[waiter]
                return False
            return not self.held and not self._wake()

    def _wake(self) -> bool:
        for waiter in self._waiters:
            del self._waiters[waiter]
            waiter.put(None)
            return True
        return False
