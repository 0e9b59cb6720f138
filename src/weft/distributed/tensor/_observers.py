"""Observers of what a thread does with distributed tensors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from weft._lazy.infer import Call
from weft._lazy.value import Value


class Observer(Protocol):
    """Is told of operators on distributed tensors, and of what they send, in forward and backward passes."""

    def on_transfer(self, collective: str, part: Value, result: Value) -> None:
        """A part was sent by a collective, under PyTorch's name; `result` is what came of it."""
        ...

    def on_call(self, call: Call, inputs: Sequence[Value], results: Sequence[Value]) -> None:
        """An operator was called, after its inputs were moved where it needs them."""
        ...


class _Observers(threading.local):
    def __init__(self) -> None:
        self.active: list[Observer] = []


_observers = _Observers()


def observers() -> list[Observer]:
    """Those of this thread; a mode adds itself."""
    return _observers.active
