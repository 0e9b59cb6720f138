"""The rounds in which the workers of a job find out that its work is over.

It is when nobody waits for a call, nothing runs, and in two rounds one after the other all workers together have served
as many calls as they have made, the same number both times (Mattern's four-counter method). Workers report to the first
of them that lives, which answers a round when all have come. Who ends without having come is left out, and so are the
calls that it has made or served (`_traffic.py`).

This is bookkeeping alone: it knows neither connections nor clocks.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from weft.distributed.rpc._traffic import Counts
from weft.distributed.rpc._workers import WorkerInfo
from weft.futures import Future


class Sums(NamedTuple):
    """The outcome of a round: what all reported, whether the work is over, and who ended without having come."""

    counts: Counts
    over: bool
    lost: tuple[str, ...]


class Rounds:
    """The rounds, at the worker that holds them, with `size` workers in all."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.watching = False  # whether the worker that holds them has begun to watch the others
        self._changed = threading.Condition()
        self._reports: dict[int, dict[int, Counts]] = {}
        self._answers: dict[int, Future[Sums]] = {}
        self._come: set[int] = set()
        self._before: Counts | None = None
        self._gone: dict[int, str] = {}
        self._over = False

    def report(self, number: int, worker: int, counts: Counts) -> Future[Sums]:
        """The sums of a round, once everybody has reported."""
        with self._changed:
            answer = self._answers.setdefault(number, Future())
            self._reports.setdefault(number, {})[worker] = counts
            self._gone.pop(worker, None)  # it has come again
        self._answer_complete()
        return answer

    def come(self, worker: int) -> None:
        """A worker is in `shutdown`; it reports when its own calls are done."""
        with self._changed:
            self._come.add(worker)

    def missing(self) -> list[int]:
        """Who has not come, and lives."""
        with self._changed:
            return sorted(set(range(self.size)) - self._come - self._gone.keys())

    def lost(self, worker: WorkerInfo) -> None:
        """A worker has ended. One of no number of this job was no worker of it."""
        if not 0 <= worker.id < self.size:
            return
        with self._changed:
            self._gone.setdefault(worker.id, worker.name)
            self._changed.notify_all()
        self._answer_complete()

    def wait_until_left(self, seconds: float) -> None:
        """Wait until all others have left: they have been told, but a connection closed early may lose it."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._gone) >= self.size - 1, seconds)

    def _answer_complete(self) -> None:
        with self._changed:
            if self._over:
                return
            complete = [number for number, reports in self._reports.items() if self._is_complete(reports)]
            answers = [(self._answers.pop(number), self._summed(self._reports.pop(number))) for number in complete]
        for answer, sums in answers:
            answer.set_result(sums)

    def _is_complete(self, reports: dict[int, Counts]) -> bool:
        return len(reports) + sum(worker not in reports for worker in self._gone) == self.size

    def _summed(self, reports: dict[int, Counts]) -> Sums:
        living = [counts for worker, counts in reports.items() if worker not in self._gone]
        made, served, running = (sum(column) for column in zip(*(counts[:3] for counts in living), strict=True))
        total = Counts(made, served, running)
        known = all(counts.peers.isdisjoint(self._gone) for counts in living)  # to all that it concerns, who is gone
        self._over = known and made == served and not running and total == self._before
        self._before = total
        return Sums(total, self._over, tuple(name for _, name in sorted(self._gone.items())))
