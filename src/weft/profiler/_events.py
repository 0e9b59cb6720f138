"""The events of a profile, and their sums by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import prod
from typing import Any

from weft._base.device import CPU
from weft._base.files import write_output
from weft._base.timeline import Phase
from weft._base.types import Arg
from weft._lazy.flops import flops_of
from weft._lazy.signature import Signature
from weft.errors import ValueRangeError
from weft.profiler._chrome import write_json
from weft.profiler._collector import Collector, Computed, Operator
from weft.profiler._cover import Cover
from weft.profiler._event import FunctionEvent, FunctionEventAvg
from weft.profiler._exchanges import exchange_events
from weft.profiler._names import operator_name
from weft.profiler._nesting import NestedSpan, nested
from weft.profiler._shares import rest_of, shared, shares_of
from weft.profiler._table import Style, table

_NAMED = frozenset({Phase.RECORDING, Phase.BLOCK, Phase.COLLECTIVE, Phase.CALL, Phase.DATA})
_SHARED_OUT = frozenset({Phase.INTERPRETING, Phase.RUNNING, Phase.WAITING})
_STEP, _STEPS = "ProfilerStep#", "ProfilerStep*"


class EventList(list[FunctionEvent]):
    """Events in order of their start, or their sums by name."""

    def __init__(self, events: Iterable[FunctionEvent] = (), *, memory: bool = False, stack: bool = False) -> None:
        super().__init__(events)
        self.with_memory, self.with_stack = memory, stack

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, without counting any twice."""
        return sum(event.self_cpu_time_total for event in self if not event.is_remote)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums of the events of each name; with the options, of each name and input shapes, or lines."""
        del group_by_overload_name
        sums: dict[Any, FunctionEvent] = {}
        for event in self:
            stack = event.stack[:group_by_stack_n]
            name = _STEPS if event.key.startswith(_STEP) else event.key
            key = name, str(event.input_shapes) if group_by_input_shape else "", tuple(stack)
            if key not in sums:
                shapes = event.input_shapes if group_by_input_shape else []
                own = {"cpu_parent": None, "cpu_children": [], "modules": ()}
                sums[key] = _average(event, key=name, input_shapes=shapes, stack=stack, **own)
                continue
            sums[key].add(event)
            if _is_within(event, event.key):  # the outer one has its time and bytes
                sums[key].cpu_time_total -= event.cpu_time_total
                sums[key].cpu_memory_usage -= event.cpu_memory_usage
                sums[key].device_memory_usage -= event.device_memory_usage
        return EventList(sums.values(), memory=self.with_memory, stack=bool(group_by_stack_n))

    def total_average(self) -> FunctionEventAvg:
        """The sum of all events."""
        whole = FunctionEventAvg("Total", 0, 0.0, 0.0, 0.0, 0)
        for event in self:
            whole.add(event)
        whole.cpu_time_total = whole.self_cpu_time_total
        whole.cpu_memory_usage = whole.self_cpu_memory_usage
        whole.device_memory_usage = whole.self_device_memory_usage
        return whole

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text, sorted by one of their numbers, such as "cpu_time_total".

        Shares are parts of the time of all events, which counts none twice. `time_unit` is "s", "ms" or "us", by
        default what suits each time.
        """
        widths = max_name_column_width, max_shapes_column_width, max_src_column_width
        style = Style(widths, time_unit, self.with_memory)
        return table(self, sort_by, row_limit, style, header=header or "", top_level=top_level_events_only)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a list for chrome://tracing or Perfetto, compressed if the path ends with `.gz`."""
        entries = [
            {"ph": "X", "name": e.key, "pid": max(0, e.node_id), "tid": e.thread, "ts": e.start}
            | {"dur": e.cpu_time_total, "args": {}}
            for e in self
        ]
        write_json(path, entries)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What `export_stacks` can write."""
        return ["self_cpu_time_total", "self_cuda_time_total"]

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each of the events' stacks, for flame graphs: its frames, and microseconds.

        `ValueError` for another metric than those of `supported_export_stacks_metrics`.
        """
        metrics = self.supported_export_stacks_metrics()
        if metric not in metrics:
            raise ValueRangeError(f"metric should be one of: {metrics}, got {metric!r}")
        sums: dict[str, float] = {}
        for event in self:
            if event.stack:
                line = ";".join(frame.replace(" ", "_") for frame in (*reversed(event.stack), event.key))
                sums[line] = sums.get(line, 0.0) + getattr(event, metric)
        text = "".join(f"{line} {round(value)}\n" for line, value in sums.items() if round(value))
        write_output(path, text.encode())

    def __str__(self) -> str:
        return self.table()


def _average(event: FunctionEvent, **changes: Arg) -> FunctionEventAvg:
    """The sum of this one event, with changes."""
    return FunctionEventAvg(**{part.name: getattr(event, part.name) for part in fields(event)} | changes)


def _is_within(event: FunctionEvent, key: str) -> bool:
    """Whether an event lies within one of this name, such as that of a block that enters itself."""
    parent = event.cpu_parent
    while parent is not None and parent.key != key:
        parent = parent.cpu_parent
    return parent is not None


def events_of(cycles: Sequence[Collector], *, shapes: bool, stack: bool, memory: bool, flops: bool) -> EventList:
    """The events of the cycles of a profile, in order of their start; times count from the begin of the first."""
    events = EventList(memory=memory, stack=stack)
    for notes in cycles:
        later = 1e-3 * (notes.start_ns - cycles[0].start_ns)
        for event in _events_in(notes, shapes=shapes, stack=stack, memory=memory, flops=flops):
            event.start += later
            event.id = len(events)
            events.append(event)
    return events


def _events_in(notes: Collector, *, shapes: bool, stack: bool, memory: bool, flops: bool) -> list[FunctionEvent]:
    """The events of one cycle, in order of their start."""
    parents: dict[int, FunctionEvent] = {}  # those of operators, by the numbers of their recordings
    spans, on_cpu = notes.all_spans(), all(map(_is_on_cpu, [operator.signature for operator in notes.operators]))
    computed = Cover((start, end) for start, end, _ in notes.computed) if on_cpu else None
    events = [
        event
        for thread in {span.thread for span in notes.spans}
        for event in _spans(nested(spans, thread), notes.start_ns, computed, parents)
    ]
    shares = shares_of(notes.computed)
    numbers = {operator.number for operator in notes.operators}
    events += [_rest(notes, program, rest) for program in notes.computed if (rest := rest_of(program, numbers))]
    for operator in notes.operators:
        around = parents.get(operator.number)
        for event, signature, site in _operator_events(operator, notes, shares.get(operator.number)):
            if shapes:
                event.input_shapes = [list(aval.shape) for aval in signature.avals]
            if stack:
                event.stack = [*([] if site is None else [_frame(site)]), *operator.stack]
            if memory and not signature.parts:  # they have their own
                _add_memory(event, signature)
            if flops and not signature.parts:
                event.flops = flops_of(signature)
            event.cpu_parent, event.is_top_level = around, _is_top(around)
            events.append(event)
            if signature is operator.signature:
                around = event  # of the parts of a captured function
    events += exchange_events(notes, shapes=shapes, memory=memory, flops=flops)
    events.sort(key=lambda event: event.start)
    for event in events:
        if event.cpu_parent is not None and not event.is_remote:  # those of other workers have their children already
            event.cpu_parent.cpu_children.append(event)
            _add_memory_around(event)
    return events


def _spans(
    entries: Sequence[NestedSpan], start_ns: int, computed: Cover | None, parents: dict[int, FunctionEvent]
) -> Iterable[FunctionEvent]:
    """The spans of a thread as events. Adds the events around operators to `parents`.

    `computed` is when programs were, if all were on the CPU: their time, which the thread runs or waits for, is within
    the whole time of spans, and left out of their own time: operators share it.
    """
    around: list[FunctionEvent | None] = []  # for each entry, its own event or the one around it
    named: list[FunctionEvent | None] = []  # the same without events of phases, such as [planning]
    for span, phase, own, outer in entries:
        parent = around[outer] if outer >= 0 else None
        block = named[outer] if outer >= 0 else None
        around.append(parent)
        named.append(block)
        if span.work is not None:
            if block is not None:
                parents[span.work.number] = block
            continue
        if computed is not None and phase in _SHARED_OUT:
            if parent is not None:  # which has what no program took
                parent.self_cpu_time_total += 1e-3 * max(0, own - computed.within(span.start, span.end))
            continue
        is_named = phase in _NAMED
        is_part = outer >= 0 and phase is entries[outer].phase and not is_named
        parent = block if is_named else parent
        event = around[-1] = FunctionEvent(
            span.name if is_named and phase is span.phase else f"[{phase}]",
            span.thread,
            1e-3 * (span.start - start_ns),
            0.0 if is_part else 1e-3 * (span.end - span.start),
            1e-3 * own,
            count=int(not is_part),
            is_user_annotation=phase is Phase.BLOCK,
            is_top_level=_is_top(parent),
            cpu_parent=parent,
        )
        if is_named:
            named[-1] = event
        yield event


def _is_on_cpu(signature: Signature) -> bool:
    return all(output.aval.device is CPU for output in signature.outputs)


def _is_top(parent: FunctionEvent | None) -> bool:
    """Whether an event with this one around it is within nothing but a step."""
    return parent is None or (parent.cpu_parent is None and parent.key.startswith(_STEP))


def _rest(notes: Collector, program: Computed, rest: float) -> FunctionEvent:
    """The event of what a program took for operators that the profile has not noted, since they came before."""
    time = 1e-3 * rest
    on_cpu = all(_is_on_cpu(signature) for signature, _ in program.applications)
    return FunctionEvent(
        "[computing]",
        notes.thread,
        1e-3 * (program.start - notes.start_ns),
        time if on_cpu else 0.0,
        time if on_cpu else 0.0,
        device_time_total=0.0 if on_cpu else time,
        computed_time_total=time,
        is_top_level=True,
    )


def _operator_events(
    operator: Operator, notes: Collector, share: float | None
) -> list[tuple[FunctionEvent, Signature, str | None]]:
    """The event of an operator and, if it is a captured function, those of its parts, which have its share: of the
    programs that computed it, None if none has.

    With each come its signature and, of a part, the line at which it was captured.
    """
    recording = 1e-3 * notes.recording_ns
    begin = 1e-3 * (operator.at - notes.start_ns) - recording

    def event(signature: Signature, time: float, own: float, computed: float) -> FunctionEvent:
        on_cpu = _is_on_cpu(signature)
        return FunctionEvent(
            operator_name(signature),
            operator.thread,
            begin,
            time if on_cpu else own - computed,
            own if on_cpu else own - computed,
            device_time_total=0.0 if on_cpu else computed,
            computed_time_total=computed,
            uncomputed=int(share is None and signature is operator.signature),
            modules=operator.modules,
            is_operator=True,
        )

    whole = operator.signature
    computed, parts = 1e-3 * (share or 0.0), whole.parts
    if not parts:
        return [(event(whole, recording + computed, recording + computed, computed), whole, None)]
    times = shared(computed, parts)
    return [
        (event(whole, recording + computed, recording, 0.0), whole, None),
        *[(event(part, t, t, t), part, site) for part, t, site in zip(parts, times, whole.sites, strict=True)],
    ]


def _frame(site: str) -> str:
    """A line of the user's as it stands in stacks."""
    file, _, line = site.rpartition(":")
    return f"{file}({line})"


def _add_memory(event: FunctionEvent, signature: Signature) -> None:
    for output in signature.outputs:
        size = prod(output.aval.shape) * output.aval.dtype.itemsize
        if output.aval.device is CPU:
            event.self_cpu_memory_usage += size
        else:
            event.self_device_memory_usage += size
    event.cpu_memory_usage, event.device_memory_usage = event.self_cpu_memory_usage, event.self_device_memory_usage


def _add_memory_around(event: FunctionEvent) -> None:
    """Add an event's own bytes to those of the events around it."""
    around = event.cpu_parent
    while around is not None:
        around.cpu_memory_usage += event.self_cpu_memory_usage
        around.device_memory_usage += event.self_device_memory_usage
        around = around.cpu_parent
