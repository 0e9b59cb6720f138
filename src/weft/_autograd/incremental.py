"""A backward pass whose roots get their cotangents one after another, for instance from other processes.

In an ordinary pass, a value's cotangent is complete when the pass reaches it. Here, roots that are still awaited may
lead to it. So uses are counted, and a value is differentiated when the cotangents of all its uses have arrived.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import chain

from weft._autograd.engine import BackwardPass, Deliver, callback_queue
from weft._autograd.graph import Vertex, VertexKey, drop_values, inputs_of, key_of
from weft._base.state import ambient, using
from weft._lazy.role import Interior, Leaf
from weft._lazy.value import Value


class IncrementalBackwardPass(BackwardPass):
    """A pass from `roots`, each of which gets its cotangent (or None) once.

    The pass stops at a value where `ends(value)`, because its graph continues in another process, and calls
    `arrived_at(value, grad)`, with None if no gradient flows to it. Gradients of leaves are passed to `deliver`.

    awaited  the number of roots without a cotangent yet
    """

    def __init__(
        self,
        roots: Sequence[Value],
        *,
        deliver: Deliver,
        ends: Callable[[Vertex], bool],
        arrived_at: Callable[[Vertex, Value | None], None],
        retain_graph: bool,
    ) -> None:
        super().__init__(deliver, None, retain_graph)
        self.awaited = len(roots)
        self._ends = ends
        self._arrived_at = arrived_at
        self._ready: list[int] = []  # a heap; the last recorded one comes first
        self._queued: list[Callable[[], None]] = []
        ordered = self._reach(roots)
        self._siblings: dict[int, int] = {}  # outputs whose cotangents are awaited, by their family
        self._count_uses(roots, ordered)

    def give(self, cotangents: Sequence[tuple[Value, Value | None]]) -> None:
        """Continue as far as these cotangents allow. Callbacks queued by hooks run when no root is awaited."""
        with callback_queue(self._queued), using(grad=False):
            self.ambient = ambient()
            self.awaited -= len(cotangents)
            for root, cotangent in cotangents:
                if cotangent is not None:
                    self._add(key_of(root), cotangent)
                self._arrived(key_of(root))
            while self._ready:
                self._visit(self.reached[-heapq.heappop(self._ready)])
            if not self.awaited:
                drop_values(self.passed)
                for callback in self._queued:
                    callback()

    def _visit(self, vertex: Vertex) -> None:
        if self._ends(vertex):
            self._arrived_at(vertex, self.grads.pop(key_of(vertex), None))
        else:
            self._execute([vertex])

    def _count_uses(self, roots: Sequence[Value], ordered: Sequence[Vertex]) -> None:
        """Count the uses of all values except leaves, which `_reach` has counted."""
        left = self.left
        for x in chain(roots, *map(self._first_inputs, ordered)):
            if isinstance(x.role, Interior):
                left[key_of(x)] = left.get(key_of(x), 0) + 1

    def _first_inputs(self, vertex: Vertex) -> Sequence[Value]:
        """The inputs of a vertex's application; for all but its first output, none."""
        if self._ends(vertex):
            return ()
        family = self.families.get(key_of(vertex))
        if family is not None:
            before = self._siblings.get(id(family), 0)
            self._siblings[id(family)] = before + 1
            if before:
                return ()
        return inputs_of(vertex)

    def _complete(self, key: VertexKey) -> None:
        """Called when all uses of a value have arrived."""
        if isinstance(key, Leaf):
            super()._complete(key)
            return
        family = self.families.get(key)
        if family is not None:
            self._siblings[id(family)] -= 1
            if self._siblings[id(family)]:
                return
        heapq.heappush(self._ready, -key)
