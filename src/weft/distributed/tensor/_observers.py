"""Observers of what a thread sends for distributed tensors."""

from __future__ import annotations

import threading
from typing import Protocol

from weft._lazy.value import Value


class Observer(Protocol):
    """Is told of what distributed tensors send, in forward and backward passes."""

    def on_transfer(self, collective: str, part: Value, result: Value) -> None:
        """A part was sent by a collective, under PyTorch's name; `result` is what came of it."""
        ...


class _Observers(threading.local):
    def __init__(self) -> None:
        self.active: list[Observer] = []


_observers = _Observers()


def observers() -> list[Observer]:
    """Those of this thread; a mode adds itself."""
    return _observers.active
