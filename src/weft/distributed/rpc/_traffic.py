"""How many calls a worker has made and served: all workers' figures together tell whether any is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from weft.distributed.rpc._workers import WorkerInfo


class Counts(NamedTuple):
    """Calls made and served between workers that live, and functions that run, of one worker or some.

    `lost` is how often a peer has ended, whose calls count no more. `peers` are those that the calls went to or came
    from, by their `bits`.
    """

    made: int
    served: int
    running: int
    lost: int = 0
    peers: int = 0

    def plus(self, *others: Counts) -> Counts:
        """The counts of all together."""
        made, served, running, lost, peers = zip(self, *others, strict=True)
        return Counts(sum(made), sum(served), sum(running), sum(lost), reduce(or_, peers))


def bits(numbers: Iterable[int]) -> int:
    """A set of numbers as one, with a bit for each."""
    return reduce(or_, (1 << number for number in numbers), 0)


class Traffic:
    """The calls of one worker, by who is at the other end. Those of a peer that has ended count no more.

    What it has made, or was to serve, can never be matched by figures of its own. Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_peer: dict[WorkerInfo, list[int] | None] = {}  # made and served; None of one that has ended
        self._served_before = 0  # for those that have ended

    def count(self, peer: WorkerInfo, *, made: int = 0, served: int = 0) -> None:
        """Calls to a peer, or from it."""
        with self._lock:
            figures = self._by_peer.get(peer)
            if figures is not None:
                figures[0] += made
                figures[1] += served
            elif peer not in self._by_peer:
                self._by_peer[peer] = [made, served]
            else:
                self._served_before += served

    def lost(self, peer: WorkerInfo) -> None:
        """A peer has ended."""
        with self._lock:
            figures = self._by_peer.get(peer)
            self._by_peer[peer] = None
            if figures is not None:
                self._served_before += figures[1]

    @property
    def served(self) -> int:
        """Calls served in all, for whomever."""
        with self._lock:
            return self._served_before + sum(figures[1] for figures in self._by_peer.values() if figures is not None)

    def counts(self, running: int) -> Counts:
        """The figures that this worker reports."""
        with self._lock:
            living = {peer: figures for peer, figures in self._by_peer.items() if figures is not None}
            made, served = (sum(figures[at] for figures in living.values()) for at in (0, 1))
            lost = len(self._by_peer) - len(living)
            return Counts(made, served, running, lost, bits(peer.id for peer in living if peer.id >= 0))
