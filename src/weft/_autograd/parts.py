"""A backward pass whose roots get their cotangents one after another, as they come from elsewhere.

In a pass of its own, a value's cotangent is complete when its turn comes in the order of recording. Here roots that are
still awaited may lead to it, so uses are counted, and a value is differentiated when all of them have arrived.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain

from weft._autograd.engine import Deliver, Pass, queueing
from weft._base.state import ambient, using
from weft._lazy.value import INTERIOR, Value


class PassInParts(Pass):
    """A pass from `roots`, each of which gets its cotangent, or none, once.

    `ends(value)` says whether the graph goes on elsewhere before a value, which then goes to `arrived_at(value, grad)`,
    with None where no gradient flows to it. Leaves go to `deliver`.

    awaited  how many roots have got nothing
    ordered  all values inside of the tape that the roots depend on
    """

    def __init__(
        self, roots: Sequence[Value], *, deliver: Deliver, ends: Callable[[Value], bool],
        arrived_at: Callable[[Value, Value | None], None], retain_graph: bool,
    ) -> None:  # fmt: skip
        super().__init__(deliver, None, retain_graph)
        self.awaited = len(roots)
        self._ends = ends
        self._arrived_at = arrived_at
        self._ready: list[tuple[int, Value]] = []  # the last recorded first
        self._done: set[int] = set()
        self._queued: list[Callable[[], None]] = []
        self.ordered = self._reach([(root, root) for root in roots])
        self._siblings: dict[int, int] = {}  # outputs whose cotangents are awaited, by the inputs that they share
        self._count_uses(roots)

    def give(self, given: Sequence[tuple[Value, Value | None]]) -> None:
        """Go as far as the cotangents of these roots let it. What hooks have queued runs when all have come."""
        with queueing(self._queued), using(grad=False):
            self.ambient = ambient()
            self.awaited -= len(given)
            for root, cotangent in given:
                if cotangent is not None:
                    self._add(root, cotangent)
                self._arrived(root)
            while self._ready:
                self._visit(heapq.heappop(self._ready)[1])
            if not self.awaited:
                for callback in self._queued:
                    callback()

    def _visit(self, value: Value) -> None:
        origin = value.origin
        assert origin is not None, "only applications are inside of the tape"
        if self._ends(value):
            self._arrived_at(value, self.grads.pop(value, None))
        elif value.tape is INTERIOR and origin.alone:
            self._differentiate_one(value)
        else:
            self._differentiate(value, self.ordered, None, self._done)

    def _count_uses(self, roots: Sequence[Value]) -> None:
        """Count the uses of what is inside of the tape; those of leaves have been."""
        left = self.left
        for value in chain(roots, *map(self._first_inputs, self.ordered)):
            if value.tape is not None and not value.tape.leaf:
                left[value] = left.get(value, 0) + 1

    def _first_inputs(self, value: Value) -> Sequence[Value]:
        """The inputs of an application, which its first output stands for."""
        assert value.origin is not None, "only applications are inside of the tape"
        if self._ends(value):
            return ()
        if not value.origin.alone:
            before = self._siblings.get(id(value.inputs), 0)
            self._siblings[id(value.inputs)] = before + 1
            if before:
                return ()
        return value.inputs

    def _complete(self, value: Value) -> None:
        """All uses of a value have arrived."""
        tape, origin = value.tape, value.origin
        if tape is None or tape.leaf or origin is None:
            super()._complete(value)
            return
        if not origin.alone:
            self._siblings[id(value.inputs)] -= 1
            if self._siblings[id(value.inputs)]:
                return
        heapq.heappush(self._ready, (-value.time, value))
