"""Events of a profile, and their sums by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.errors import NameKeyError

_COLUMNS = {
    "Total": "cpu_time_total",
    "Self": "self_cpu_time_total",
    "Avg": "cpu_time",
    "Calls": "count",
}


@dataclass(slots=True)
class FunctionEvent:
    """A block of time on a thread, or all blocks of one name; times in microseconds.

    `self_cpu_time_total` is without the blocks within.
    """

    key: str
    thread: int
    start: float
    cpu_time_total: float
    self_cpu_time_total: float
    count: int = 1

    @property
    def name(self) -> str:
        """The same as `key`."""
        return self.key

    @property
    def cpu_time(self) -> float:
        """The time of one block, on average."""
        return self.cpu_time_total / self.count


class EventList(list[FunctionEvent]):
    """Events in order of their start, or their sums by name."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, without counting any twice."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, *args: Any, **kwargs: Any) -> EventList:
        """The sums of the events of each name."""
        sums: dict[str, FunctionEvent] = {}
        for event in self:
            whole = sums.setdefault(event.key, FunctionEvent(event.key, event.thread, event.start, 0, 0, 0))
            whole.cpu_time_total += event.cpu_time_total
            whole.self_cpu_time_total += event.self_cpu_time_total
            whole.count += event.count
        return EventList(sums.values())

    def total_average(self) -> FunctionEvent:
        """The sum of all events."""
        whole = FunctionEvent("Total", 0, 0, 0, self.self_cpu_time_total, len(self))
        whole.cpu_time_total = whole.self_cpu_time_total
        return whole

    def table(self, sort_by: str | None = None, row_limit: int = 100, *args: Any, **kwargs: Any) -> str:
        """The events as text, sorted by one of their numbers, such as "cpu_time_total"."""
        if sort_by is not None and sort_by not in _COLUMNS.values():
            raise NameKeyError(f"sort_by must be one of {', '.join(_COLUMNS.values())}, got {sort_by!r}")
        rows = sorted(self, key=lambda event: -getattr(event, sort_by)) if sort_by else self
        width = max([4, *[min(len(event.key), 55) for event in self]])
        lines = [f"{'Name':{width}}" + "".join(f"{title:>14}" for title in _COLUMNS)]
        for event in rows[: row_limit if row_limit >= 0 else None]:
            numbers = [getattr(event, column) for column in _COLUMNS.values()]
            texts = [f"{value:d}" if isinstance(value, int) else f"{value:.3f}us" for value in numbers]
            lines.append(f"{event.key[:width]:{width}}" + "".join(f"{text:>14}" for text in texts))
        return "\n".join([*lines, f"Self CPU time total: {self.self_cpu_time_total:.3f}us"])

    def __str__(self) -> str:
        return self.table()


def events_of(entries: Iterable[dict[str, Any]]) -> EventList:
    """The events of a trace in Chrome's format: its entries of phase X, with the time of each without those within."""
    events = EventList()
    open_blocks: dict[int, list[FunctionEvent]] = {}  # by thread, those that enclose the current one
    blocks = [entry for entry in entries if entry.get("ph") == "X"]
    for entry in sorted(blocks, key=lambda entry: (entry["ts"], -entry["dur"])):
        event = FunctionEvent(entry["name"], entry["tid"], entry["ts"], entry["dur"], entry["dur"])
        around = open_blocks.setdefault(event.thread, [])
        while around and around[-1].start + around[-1].cpu_time_total <= event.start:
            around.pop()
        if around:
            around[-1].self_cpu_time_total -= event.cpu_time_total
        around.append(event)
        events.append(event)
    return events
