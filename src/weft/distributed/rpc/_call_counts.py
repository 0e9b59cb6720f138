"""How many calls a worker has sent and served: the sums over all workers show whether any is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from weft.distributed.rpc._workers import WorkerInfo


class Counts(NamedTuple):
    """Calls sent and served between living workers, and running functions, of one worker or several.

    `lost` is the number of peers that have ended, whose calls are not counted any more. `peers` are the other ends of
    the calls, as `bits`.
    """

    sent: int
    served: int
    running: int
    lost: int = 0
    peers: int = 0

    def plus(self, *others: Counts) -> Counts:
        """The counts of all together."""
        sent, served, running, lost, peers = zip(self, *others, strict=True)
        return Counts(sum(sent), sum(served), sum(running), sum(lost), reduce(or_, peers))


def bits(numbers: Iterable[int]) -> int:
    """A set of numbers as the bits of one int."""
    return reduce(or_, (1 << number for number in numbers), 0)


class CallCounter:
    """Counts the calls of one worker by peer. Those of a peer that has ended are dropped from the sums.

    A lost peer cannot report its own counts any more, so these could never match. Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_peer: dict[WorkerInfo, list[int] | None] = {}  # sent and served; None of one that has ended
        self._served_before = 0  # for those that have ended

    def count(self, peer: WorkerInfo, *, sent: int = 0, served: int = 0) -> None:
        """Count calls to a peer, or from it."""
        with self._lock:
            figures = self._by_peer.get(peer)
            if figures is not None:
                figures[0] += sent
                figures[1] += served
            elif peer not in self._by_peer:
                self._by_peer[peer] = [sent, served]
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
        """Calls served in total."""
        with self._lock:
            return self._served_before + sum(figures[1] for figures in self._by_peer.values() if figures is not None)

    def counts(self, running: int) -> Counts:
        """The figures that this worker reports."""
        with self._lock:
            living = {peer: figures for peer, figures in self._by_peer.items() if figures is not None}
            sent, served = (sum(figures[at] for figures in living.values()) for at in (0, 1))
            lost = len(self._by_peer) - len(living)
            return Counts(sent, served, running, lost, bits(peer.id for peer in living if peer.id >= 0))
