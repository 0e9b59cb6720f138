"""The right to read what several threads wait for."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock

Waiter = SimpleQueue[None]
"""What a thread waits at, which something is put into when it is to look again."""


class ReaderLock:
    """Held by one thread at a time. Who cannot have it may leave a waiter, which is woken when it is free."""

    __slots__ = ("_lock", "_waiters", "missed", "taken")

    def __init__(self) -> None:
        self.missed = False
        """Whether somebody without a waiter has tried to take it in vain, and relies on who has it."""
        self._lock = Lock()
        self.taken = False
        self._waiters: dict[Waiter, None] = {}  # in the order of coming

    def acquire(self, waiter: Waiter | None = None) -> bool:
        """Take the lock, if nobody has it."""
        with self._lock:
            if self.taken:
                if waiter is None:
                    self.missed = True
                else:
                    self._waiters[waiter] = None
                return False
            self.taken = True
            self._waiters.pop(waiter, None)  # pyright: ignore[reportArgumentType, reportCallIssue]  None is no key
            return True

    def release(self) -> bool:
        """Give it back; whether somebody is there to take it."""
        with self._lock:
            self.taken = False
            return self._wake()

    def withdraw(self, waiter: Waiter) -> bool:
        """Wait no more. Whether nobody has the lock, nor will take it, as this waiter was woken for it."""
        with self._lock:
            if waiter in self._waiters:
                del self._waiters[waiter]
                return False
            return not self.taken and not self._wake()

    def _wake(self) -> bool:
        for waiter in self._waiters:
            del self._waiters[waiter]
            waiter.put(None)
            return True
        return False
