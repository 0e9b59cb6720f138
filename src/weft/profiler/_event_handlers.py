"""Events, and the handlers that get all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.errors import ArgumentError

data_value_t = int | float | bool | str  # PyTorch's name
"""What an event tells."""


@dataclass
class Event:
    """Something that has happened: a name, a time, and figures or texts. `TypeError` for anything else."""

    name: str
    timestamp: datetime
    data: dict[str, data_value_t]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.timestamp, datetime):
            raise ArgumentError(
                f"Event: expected a name and a datetime, got {self.name!r} and {self.timestamp!r} (a float of "
                "time.time() is datetime.fromtimestamp(it))"
            )
        wrong = [key for key, value in self.data.items() if not (isinstance(key, str) and _is_value(value))]
        if wrong:
            raise ArgumentError(
                f"Event: data must be numbers, bools and strings by name, got {self.data[wrong[0]]!r} for {wrong[0]!r}"
            )


def _is_value(value: object) -> bool:
    return isinstance(value, (int, float, str))


Handler = Callable[[Event], Any]


class EventHandlerHandle:
    """What `unregister_event_handler` takes."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler


_handlers: dict[EventHandlerHandle, None] = {}


def register_event_handler(callback: Handler) -> EventHandlerHandle:
    """Call `callback(event)` for every event from now on, in the thread that logs it; `log_event` raises its errors."""
    if not callable(callback):
        raise ArgumentError(f"register_event_handler: expected a function of an Event, got {callback!r}")
    handle = EventHandlerHandle(callback)
    _handlers[handle] = None
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Undo `register_event_handler`; further calls do nothing."""
    _handlers.pop(handler, None)


def log_event(event: Event) -> None:
    """Send an event to all handlers."""
    if not isinstance(event, Event):
        raise ArgumentError(f"log_event: expected a weft.monitor.Event, got {event!r}")
    for handle in list(_handlers):
        handle._handler(event)


STAT_EVENT = "torch.monitor.Stat"
"""The name of the events of `Stat`, as PyTorch's handlers know it."""


class TensorboardEventHandler:
    """A handler that writes the figures of `Stat`s as scalars to a `SummaryWriter`; other events are ignored."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            figures: Mapping[str, Any] = event.data
            for name, value in figures.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
