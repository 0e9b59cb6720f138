"""Exchanges with other processes among the events of a profile, and what other workers have done for calls."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from weft._base.timeline import Exchange
from weft.profiler._collector import Collector
from weft.profiler._event import FunctionEvent

REMOTE_OPERATOR = "#remote_op: "
"""Stands between the name of a call and that of an event that it has caused."""


def exchange_events(
    notes: Collector, *, shapes: bool, memory: bool, flops: bool, phases: bool = False
) -> Iterable[FunctionEvent]:
    """The events of exchanges: each call, collective and message, and what other workers have noted of calls.

    Without `phases`, that is operators, blocks and calls, and not what they have planned, compiled and so on.
    """
    for exchange in notes.exchanges:
        end = notes.end_ns if exchange.end is None else exchange.end
        start, duration = 1e-3 * (exchange.start - notes.start_ns), 1e-3 * (end - exchange.start)
        own = FunctionEvent(
            exchange.name, exchange.thread, start, duration, 0.0, is_async=True, node_id=exchange.caller
        )
        if shapes:
            own.input_shapes = [list(shape) for shape in exchange.shapes]
        yield own
        events = _copies([event for event in exchange.events if phases or not event.key.startswith("[")])
        first = start + _lead(exchange, duration)
        for event in events:
            event.key = f"{exchange.name}{REMOTE_OPERATOR}{event.key}"
            event.is_remote, event.is_top_level, event.thread = True, False, exchange.thread
            event.node_id = event.node_id if event.node_id >= 0 else exchange.worker
            event.start += first
            if not shapes:
                event.input_shapes = []
            if not memory:
                event.cpu_memory_usage = event.device_memory_usage = 0
                event.self_cpu_memory_usage = event.self_device_memory_usage = 0
            if not flops:
                event.flops = 0
        yield from events


def _lead(exchange: Exchange, duration: float) -> float:
    """Microseconds from the begin of a call to that of the other worker's notes, whose clock is another one.

    That is half of what the call has taken beyond them: request and answer are taken to need the same time.
    """
    noted = max([event.start + event.cpu_time_total for event in exchange.events if not event.is_remote], default=0.0)
    return max(0.0, duration - noted) / 2


def _copies(events: Iterable[FunctionEvent]) -> list[FunctionEvent]:
    """Events that may be changed, with parents and children among them."""
    copies = {id(event): copy(event) for event in events}
    for event in copies.values():
        parent = event.cpu_parent
        while parent is not None and id(parent) not in copies:
            parent = parent.cpu_parent
        event.cpu_parent = None if parent is None else copies[id(parent)]
        event.cpu_children = [copies[id(child)] for child in event.cpu_children if id(child) in copies]
    return [*copies.values()]
