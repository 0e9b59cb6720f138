"""A point in time by which an operation must be done. All its parts share it, and none restarts it."""

from __future__ import annotations

from time import monotonic


class Deadline:
    """The time `seconds` from now; None means no limit."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else monotonic() + seconds

    def left(self) -> float | None:
        """Seconds left, at least 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the time has passed."""
        return self._end is not None and monotonic() >= self._end
