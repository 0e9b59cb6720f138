"""The numbers of calls sent and served by a worker; their sums over all workers show whether any call is in flight."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from weft._base.activity import process
from weft.distributed.rpc._workers import WorkerInfo


class Counts(NamedTuple):
    """Calls sent and served between living workers, and running functions, of one worker or of several.

    `lost` is the number of peers that have ended, whose calls are no longer counted. `peers` are the other ends of the
    calls, as `bits`.
    """

    sent: int
    served: int
    running: int
    lost: int = 0
    peers: int = 0

    def plus(self, *others: Counts) -> Counts:
        """The sum of these counts."""
        sent, served, running, lost, peers = zip(self, *others, strict=True)
        return Counts(sum(sent), sum(served), sum(running), sum(lost), reduce(_union, peers))


def _union(one: int, other: int) -> int:
    return one | other


def bits(numbers: Iterable[int]) -> int:
    """A set of numbers as the bits of an int."""
    return reduce(_union, (1 << number for number in numbers), 0)


class CallCounter:
    """Counts the calls of one worker by peer. The calls of a peer that has ended are removed from the sums.

    An ended peer cannot report its own counts, so the sums would never be equal. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_peer: dict[WorkerInfo, list[int] | None] = {}  # sent and served; None for a peer that has ended
        self._served_before = 0  # calls served for peers that have ended

    def count(self, peer: WorkerInfo, *, sent: int = 0, served: int = 0) -> None:
        """Count calls to a peer, or from it."""
        with self._lock:
            if served and process.activity is not None:
                process.activity.served(served)
            figures = self._by_peer.get(peer)
            if figures is not None:
                figures[0] += sent
                figures[1] += served
            elif peer not in self._by_peer:
                self._by_peer[peer] = [sent, served]
            else:
                self._served_before += served

    def lost(self, peer: WorkerInfo) -> None:
        """Remove the calls of a peer that has ended."""
        with self._lock:
            figures = self._by_peer.get(peer)
            # The entry stays, so that a late call of the dead worker does not begin a new count, which no report would
            # ever balance.
            self._by_peer[peer] = None
            if figures is not None:
                self._served_before += figures[1]

    @property
    def served(self) -> int:
        """Calls served in total."""
        with self._lock:
            return self._served_before + sum(figures[1] for figures in self._by_peer.values() if figures is not None)

    def counts(self, running: int) -> Counts:
        """The counts that this worker reports."""
        with self._lock:
            living = {peer: figures for peer, figures in self._by_peer.items() if figures is not None}
            sent, served = (sum(figures[at] for figures in living.values()) for at in (0, 1))
            # Part of the report, so that a round in which a worker's end was noticed never equals the round before it.
            lost = len(self._by_peer) - len(living)
            return Counts(sent, served, running, lost, bits(peer.id for peer in living if peer.id >= 0))
