"""The table of a profile's events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.errors import MemberError
from weft.profiler._event import FunctionEvent
from weft.profiler._units import bytes_text, time_text


class Column(NamedTuple):
    """A column: its title, the text of an event, and whether it stands on the left."""

    title: str
    text: Callable[[FunctionEvent], str]
    left: bool = False


_SORTABLE = (
    *("count", "cpu_time", "cpu_time_total", "self_cpu_time_total", "computed_time_total", "flops"),
    *("device_time", "device_time_total", "self_device_time_total", "cuda_time", "cuda_time_total"),
    *("self_cuda_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage"),
    *("self_device_memory_usage", "cuda_memory_usage", "self_cuda_memory_usage"),
)


def _sort_key(name: str) -> Callable[[FunctionEvent], float]:
    if name not in _SORTABLE:
        raise MemberError(f"sort_by must be one of {', '.join(_SORTABLE)}, got {name!r}")
    attribute = name.replace("cuda_memory", "device_memory")
    return lambda event: -getattr(event, attribute)


class Style(NamedTuple):
    """How a table looks.

    widths   of names, shapes and lines, at most
    unit     of times: "s", "ms", "us", or None for what suits each
    memory   whether there are columns of bytes
    """

    widths: tuple[int, int, int]
    unit: str | None
    memory: bool

    def time(self, microseconds: float) -> str:
        """A time as text."""
        return time_text(microseconds, self.unit)


def table(
    events: Sequence[FunctionEvent],
    sort_by: str | None,
    row_limit: int,
    style: Style,
    *,
    header: str = "",
    top_level: bool = False,
) -> str:
    """The events as text: a line for each of the first `row_limit`, with sums and shares of the whole."""
    rows = sorted(events, key=_sort_key(sort_by)) if sort_by else list(events)
    rows = [event for event in rows if event.is_top_level or not top_level]
    rows = rows[: row_limit if row_limit >= 0 else None]
    columns = _columns(events, style)
    cells = [[column.title for column in columns], *[[column.text(event) for column in columns] for event in rows]]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("-" * size for size in sizes)
    lines = [
        "  ".join(
            cell.ljust(n) if column.left else cell.rjust(n) for cell, n, column in zip(row, sizes, columns, strict=True)
        )
        for row in cells
    ]
    own = [event for event in events if not event.is_remote]
    totals = [f"Self CPU time total: {style.time(sum(event.self_cpu_time_total for event in own))}"]
    device = sum(event.device_time_total for event in own)
    if device:
        totals.append(f"Self device time total: {style.time(device)}")
    if any(event.is_remote for event in events):
        totals.append("Times of remote operators are those of the other worker, and belong to no share and no total")
    if any(event.computed_time_total for event in events):
        totals.append("Computed: the operator's share of the programs that computed it, by estimated costs")
    if uncomputed := sum(event.uncomputed for event in own):
        were = "operator was" if uncomputed == 1 else "operators were"
        totals.append(f"{uncomputed} {were} not computed within the profile: nobody read their results")
    head = [header] if header else []
    if top_level:
        head.append("This report only display top-level ops statistics")  # PyTorch's words
    return "\n".join([*head, rule, lines[0], rule, *[line.rstrip() for line in lines[1:]], rule, *totals])


def _columns(events: Sequence[FunctionEvent], style: Style) -> list[Column]:
    widths, time = style.widths, style.time
    own = [event for event in events if not event.is_remote]
    whole = sum(event.self_cpu_time_total for event in own)
    # threads may wait for one program at a time, which counts once
    whole = max([whole, *[event.cpu_time_total for event in own if not event.is_async]])
    computed = sum(event.computed_time_total for event in own)
    device = sum(event.device_time_total for event in events)
    columns = [
        Column("Name", lambda e: (_end if e.is_remote else _cut)(e.key, widths[0]), left=True),
        Column("Self CPU %", lambda e: _share(e.self_cpu_time_total, whole, e)),
        Column("Self CPU", lambda e: time(e.self_cpu_time_total)),
        Column("CPU total %", lambda e: _share(e.cpu_time_total, whole, e)),
        Column("CPU total", lambda e: time(e.cpu_time_total)),
        Column("CPU time avg", lambda e: time(e.cpu_time)),
    ]
    if any(event.computed_time_total for event in events):
        columns += [
            Column("Computed", lambda e: time(e.computed_time_total) if e.computed_time_total else "--"),
            Column("Computed %", lambda e: _share(e.computed_time_total, computed, e)),
        ]
    if device:
        columns += [
            Column("Device total", lambda e: time(e.device_time_total)),
            Column("Device time avg", lambda e: time(e.device_time)),
        ]
    if style.memory:
        columns += [
            Column("CPU Mem", lambda e: bytes_text(e.cpu_memory_usage)),
            Column("Self CPU Mem", lambda e: bytes_text(e.self_cpu_memory_usage)),
        ]
        if any(event.device_memory_usage for event in events):
            columns += [
                Column("Device Mem", lambda e: bytes_text(e.device_memory_usage)),
                Column("Self Device Mem", lambda e: bytes_text(e.self_device_memory_usage)),
            ]
    columns.append(Column("# of Calls", lambda e: str(e.count)))
    if any(event.node_id >= 0 for event in events):
        columns.append(Column("Node ID", lambda e: str(e.node_id) if e.node_id >= 0 else "--"))
    if any(event.input_shapes for event in events):
        columns.append(Column("Input Shapes", lambda e: _cut(str(e.input_shapes), widths[1]), left=True))
    if any(event.stack for event in events):
        columns.append(Column("Source Location", lambda e: _end(e.stack[0] if e.stack else "", widths[2]), left=True))
    if any(event.flops for event in events):
        columns.append(Column("Total MFLOPs", lambda e: f"{1e-6 * e.flops:.3f}" if e.flops else "--"))
    return columns


def _share(part: float, whole: float, event: FunctionEvent) -> str:
    return f"{100 * part / whole:.2f}%" if whole and not (event.is_remote or event.is_async) else "--"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _end(text: str, width: int) -> str:
    return text if len(text) <= width else "..." + text[3 - width :]
