"""Whose turn it is to read what several threads wait for."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock

Bell = SimpleQueue[None]


class Turn:
    """Held by one thread at a time. Who cannot have it may leave a bell, which rings when it is free."""

    __slots__ = ("_bells", "_lock", "missed", "taken")

    def __init__(self) -> None:
        self.missed = False
        """Whether somebody without a bell has tried to take it in vain, and relies on who has it."""
        self._lock = Lock()
        self.taken = False
        self._bells: dict[Bell, None] = {}  # in the order of coming

    def take(self, bell: Bell | None = None) -> bool:
        """Take the turn, if nobody has it."""
        with self._lock:
            if self.taken:
                if bell is None:
                    self.missed = True
                else:
                    self._bells[bell] = None
                return False
            self.taken = True
            self._bells.pop(bell, None)  # pyright: ignore[reportArgumentType, reportCallIssue]  None is no key
            return True

    def leave(self) -> bool:
        """Give it back; whether somebody is there to take it."""
        with self._lock:
            self.taken = False
            return self._ring()

    def forget(self, bell: Bell) -> bool:
        """Wait no more. Whether nobody has the turn, nor will take it, as this bell was rung for it."""
        with self._lock:
            if bell in self._bells:
                del self._bells[bell]
                return False
            return not self.taken and not self._ring()

    def _ring(self) -> bool:
        for bell in self._bells:
            del self._bells[bell]
            bell.put(None)
            return True
        return False
