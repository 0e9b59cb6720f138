"""Observers of what a thread sends for distributed tensors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from weft._lazy.value import Value


class Observer(Protocol):
    """Is told of what distributed tensors send, in forward and backward passes."""

    def on_transfer(self, collective: str, part: Value, *, requested: bool) -> None:
        """A part is about to be sent by a collective, under PyTorch's name.

        requested   whether the program has called for it, as by `redistribute`, rather than an operator that needs it
        """
        ...


class _Thread(threading.local):
    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self.requested = False


_thread = _Thread()


def observers() -> list[Observer]:
    """Those of this thread; a mode adds itself."""
    return _thread.observers


def note_transfer(collective: str, part: Value) -> None:
    """Tell the observers of this thread of a transfer that begins."""
    for observer in _thread.observers:
        observer.on_transfer(collective, part, requested=_thread.requested)


@contextmanager
def requested() -> Iterator[None]:
    """Mark transfers within the block as called for by the program."""
    before, _thread.requested = _thread.requested, True
    try:
        yield
    finally:
        _thread.requested = before
