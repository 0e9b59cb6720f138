"""A point in time by which something must be done; passed down whole, never restarted."""

from __future__ import annotations

from time import monotonic


class Deadline:
    """The moment `seconds` from now, or never for None."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else monotonic() + seconds

    def left(self) -> float | None:
        """Seconds until then, at least 0; None where there is no end."""
        return None if self._end is None else max(0.0, self._end - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self._end is not None and monotonic() >= self._end
