"""Rates of processing."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.xla._flags import number


class RateTracker:
    """Counts items, and tells how many there were each second.

    `smooth_factor` is the share of the last rate in the next one, by default `RATE_TRACKER_SMOOTHING` or 0.4. `clock`
    tells the seconds.
    """

    def __init__(self, smooth_factor: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._smooth_factor = number("RATE_TRACKER_SMOOTHING", 0.4) if smooth_factor is None else smooth_factor
        self._clock = clock
        self._start = self._since = clock()
        self._counted = 0.0  # before `_since`
        self._count = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        """Add items that were processed."""
        self._count += count

    def rate(self) -> float:
        """Items per second since the previous call, smoothed with the rates before; 0 if no time has passed."""
        now = self._clock()
        seconds = now - self._since
        if seconds <= 0:
            return 0.0
        rate = self._smooth(self._count / seconds)
        self._update(now, rate)
        return rate

    def global_rate(self) -> float:
        """Items per second since the tracker was made; 0 if no time has passed."""
        seconds = self._clock() - self._start
        return (self._counted + self._count) / seconds if seconds > 0 else 0.0

    def _smooth(self, rate: float) -> float:
        if self._rate is None:
            return rate
        return (1 - self._smooth_factor) * rate + self._smooth_factor * self._rate

    def _update(self, now: float, rate: float) -> None:
        self._counted += self._count
        self._count = 0.0
        self._since = now
        self._rate = rate
