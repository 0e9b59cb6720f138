"""Statistics of numbers over windows of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from weft.errors import ArgumentError
from weft.profiler._event_handlers import STAT_EVENT as STAT_EVENT
from weft.profiler._event_handlers import Event, log_event


class Aggregation(IntEnum):
    """What becomes of the numbers of a window: the last one, or their mean, count, sum, maximum or minimum."""

    VALUE = 0
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation

_COMPUTED: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    Aggregation.VALUE: lambda numbers: numbers[-1],
    Aggregation.MEAN: lambda numbers: sum(numbers) / len(numbers),
    Aggregation.COUNT: lambda numbers: float(len(numbers)),
    Aggregation.SUM: sum,
    Aggregation.MAX: max,
    Aggregation.MIN: min,
}


class Stat:
    """Numbers over windows of `window_size`: each window is logged as an event when it ends, or has `max_samples`.

    That a window is over is noticed when the next number is added. What is added after `max_samples` in the same window
    is dropped. Events are named `STAT_EVENT`, and their data `NAME.mean` and so on.
    """

    def __init__(
        self, name: str, aggregations: Sequence[Aggregation], window_size: timedelta, max_samples: int | None = None
    ) -> None:
        if not isinstance(window_size, timedelta) or window_size <= timedelta():
            raise ArgumentError(f"Stat: window_size must be a timedelta above zero, got {window_size!r}")
        self.name = name
        self._aggregations = list(aggregations)
        self._seconds = window_size.total_seconds()
        self._most = None if max_samples is None or max_samples < 1 else max_samples
        self._lock = threading.RLock()  # a handler may read the figures
        self._numbers: list[float] = []
        self._window = self._logged = -1
        self._latest = dict.fromkeys(self._aggregations, 0.0)

    def _now(self) -> int:
        """The number of the current window."""
        return int(time.monotonic() / self._seconds)

    def add(self, v: float) -> None:
        """Add a number."""
        if not isinstance(v, (int, float)):
            raise ArgumentError(f"Stat.add: expected a number, got {v!r}")
        with self._lock:
            self._log_if_over()
            if self._now() == self._logged:
                return
            if not self._numbers:
                self._window = self._now()
            self._numbers.append(float(v))
            self._log_if_over()

    def get(self) -> dict[Aggregation, float]:
        """The figures of the last window that has been logged; zeros before the first."""
        return dict(self._latest)

    @property
    def count(self) -> int:
        """How many numbers the current window has."""
        return len(self._numbers)

    def _log_if_over(self) -> None:
        is_full = self._most is not None and len(self._numbers) >= self._most
        if not self._numbers or not (is_full or self._window < self._now()):
            return
        self._latest = {key: _COMPUTED[key](self._numbers) for key in self._aggregations}
        self._numbers, self._logged = [], self._window
        data: dict[str, Any] = {f"{self.name}.{key.name.lower()}": value for key, value in self._latest.items()}
        log_event(Event(STAT_EVENT, datetime.now(), data))
