"""A lock that decides which one of several waiting threads reads for all of them."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock

Waiter = SimpleQueue[None]
"""A queue on which a thread waits; an item wakes the thread."""


class ReaderLock:
    """A lock that does not block: a thread that cannot take it may leave a waiter, and is woken when it is released."""

    __slots__ = ("_lock", "_waiters", "held", "missed")

    def __init__(self) -> None:
        self.missed = False
        """Whether a thread without a waiter has failed to take the lock, so that the holder must read for it."""
        self._lock = Lock()
        self.held = False
        self._waiters: dict[Waiter, None] = {}  # in the order of arrival

    def acquire(self, waiter: Waiter | None = None) -> bool:
        """Take the lock if it is free; otherwise leave the waiter, if any. Returns whether the lock was taken."""
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
        """Stop waiting. True if this waiter was woken to take the lock, which is still free and wakes nobody else."""
        with self._lock:
            # A waiter that was woken and does not take the lock must pass it on, or nobody would read.
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
