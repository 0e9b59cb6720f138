"""Handlers of events."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import lru_cache

from weft.distributed.elastic.events.api import Event
from weft.errors import ArgumentError, NameKeyError

_KINDS = {"console": logging.StreamHandler, "dynamic_rendezvous": logging.NullHandler, "null": logging.NullHandler}


@lru_cache(maxsize=len(_KINDS))
def _handler_for(destination: str) -> logging.Handler:
    return _KINDS[destination]()


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """The log handler of a destination: `console`, `dynamic_rendezvous` or `null`; `KeyError` for any other."""
    if destination not in _KINDS:
        raise NameKeyError(f"no event destination is called {destination!r}; there are {', '.join(_KINDS)}")
    return _handler_for(destination)


class EventHandler(ABC):
    """Gets every recorded event, whatever its destination, after it was installed by `configure`."""

    @abstractmethod
    def record(self, event: Event) -> None:
        """Handle one event. Exceptions are logged and not passed on."""


class NullEventHandler(EventHandler):
    """Ignores events."""

    def record(self, event: Event) -> None:
        """Do nothing."""


class _Installed:
    handler: EventHandler = NullEventHandler()


installed = _Installed()


def configure(handler: object) -> None:
    """Pass the events of this process to a handler, in addition to the log."""
    if not isinstance(handler, EventHandler):
        raise ArgumentError(f"events.configure(): handler must be an EventHandler, got {type(handler).__name__}")
    installed.handler = handler
