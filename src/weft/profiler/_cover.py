"""Time that intervals cover."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Cover:
    """The time in which at least one of some intervals lies."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(intervals):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def length(self) -> int:
        """How long it is."""
        return sum(self._ends) - sum(self._starts)

    def within(self, start: int, end: int) -> int:
        """How much of it lies between two times."""
        covered, at = 0, bisect_right(self._ends, start)
        while at < len(self._starts) and self._starts[at] < end:
            covered += min(end, self._ends[at]) - max(start, self._starts[at])
            at += 1
        return covered
