"""The gradients that a context has of a worker's leaves, while a pass adds to them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from weft._autograd.engine import add_values
from weft._base.state import ambient
from weft._lazy.value import Tape, Value
from weft._tensor.gradients import accumulate
from weft._tensor.tensor import wrap
from weft.distributed.rpc._contexts import Context

_lending = threading.Lock()
"""Held by whoever has put gradients of a context into `.grad`."""


class Collected:
    """Adds gradients of leaves to a context's, and leaves `.grad` alone.

    Hooks after accumulation expect `.grad`, and may change it, as those of DistributedDataParallel do. So, within
    `with`, leaves that have some have the context's gradient in its place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._hooked: set[Tape] = set()
        self._own: dict[Tape, Any] = {}  # what `.grad` was of those that have the context's

    def add(self, tape: Tape, grad: Value) -> None:
        """Add a gradient to a leaf's."""
        gradients = self._context.gradients
        if tape.post_hooks:
            self._lend(tape)
            accumulate(tape, grad, create_graph=False)
        else:
            before = gradients.get(tape)
            gradients[tape] = grad if before is None else add_values(before, grad, ambient())

    def __enter__(self) -> None:
        for tape in self._hooked:
            self._lend(tape)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._own:
            for tape, own in self._own.items():
                if tape.grad is not None:
                    self._context.gradients[tape] = tape.grad._read()
                tape.grad = own
            self._own = {}
            _lending.release()

    def _lend(self, tape: Tape) -> None:
        if tape in self._own:
            return
        if not self._own:
            _lending.acquire()
        self._hooked.add(tape)
        held = self._context.gradients.get(tape)
        self._own[tape], tape.grad = tape.grad, None if held is None else wrap(held)
