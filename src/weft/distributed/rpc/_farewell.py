"""How the workers of a job end together.

The work is over when nobody waits for a call, nothing runs, and in two rounds one after the other all workers together
have served as many calls as they have made, the same number both times (Mattern's four-counter method). Workers report
to the first of them that lives, which answers a round when all have come, and watches all of them meanwhile. Who ends
without having come is left out, and so are the calls that it has made or served (`_traffic.py`).
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from weft._comm.deadline import Deadline
from weft.distributed.rpc._service import Later
from weft.distributed.rpc._traffic import Counts
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import FutureError, RpcError, RpcTimeoutError
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent

_REACH = 10.0  # seconds in which a worker must answer that is said to be there
_GRACE = 5.0  # seconds for which the first worker waits for the others to leave
_LAST_WORDS = 1.0  # seconds before its deadline at which a worker asks who has not come
_WORK_GOES_ON = "all have come or ended, and work goes on"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25  # seconds between rounds while something still runs


class Sums(NamedTuple):
    """The outcome of a round: what all reported, whether the work is over, and who ended without having come."""

    counts: Counts
    over: bool
    lost: tuple[str, ...]


class Rounds:
    """The rounds, at the worker that holds them, with `size` workers in all."""

    def __init__(self, size: int) -> None:
        self.size = size
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


class Farewell:
    """A worker's part in the end of its job."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._rounds = Rounds(agent.size or 0)
        self._watching = False

    def report(self, number: int, worker: int, counts: Counts) -> Later:
        """A worker has come to the end. From the first one on, this one watches all others."""
        if not self._watching:
            self._watching = True
            self._agent.hub.run(self._reach_all)
        return Later(self._rounds.report(number, worker, counts))

    def come(self, worker: int) -> None:
        """A worker has come to the end."""
        self._rounds.come(worker)

    def missing(self) -> list[str]:
        """The names of those who have not come to the end."""
        return [self._name(number) for number in self._rounds.missing()]

    def lost(self, peer: WorkerInfo) -> None:
        """A worker has ended."""
        self._rounds.lost(peer)

    def _reach_all(self) -> None:
        for number in range(self._rounds.size):
            try:
                self._connect(self._found(number), Deadline(None))
            except RpcError:
                self._rounds.lost(WorkerInfo(self._name(number), number))

    def _name(self, number: int) -> str:
        workers = self._agent.workers
        if number not in workers.names:  # who reports may have joined before this one has learnt of all
            with suppress(RpcError):
                found = workers.find(number)
                return str(number) if found is None else found.name
        return workers.names.get(number, str(number))

    def _found(self, number: int) -> WorkerInfo:
        found = self._agent.workers.find(number)
        if found is None:
            raise RpcError(f"worker {number} has left")
        return found

    def _connect(self, to: WorkerInfo, deadline: Deadline) -> None:
        """Connect to a worker, so that its end is told; one that does not answer is waited for.

        `RpcError` where it has ended, and at the deadline an `RpcTimeoutError`.
        """
        while to != self._agent.me and not self._agent.closing:
            try:
                self._agent.peers.reach(to, min(_REACH, _within(deadline) or _REACH))
                return
            except RpcTimeoutError:  # it is stopped, or busy
                if deadline.expired:
                    raise

    def part(self, deadline: Deadline) -> None:
        """Return when the work of all workers is over.

        `RuntimeError` at the deadline, or, when the work of the others is over, where some ended before it was over.
        """
        self._rounds.come(self._agent.me.id)
        for leader in range(self._rounds.size):
            try:
                lost = self._go_through_rounds(leader, deadline)
                break
            except RpcTimeoutError as error:
                raise RpcError(
                    f"shutdown: {self._agent.me} waited {deadline.seconds:g} s for the other workers to come to "
                    f"shutdown(), or for work to end: {error}; allow more time, or leave with graceful=False"
                ) from None
            except RpcError:
                if leader == self._agent.me.id:
                    raise
                self._rounds.lost(WorkerInfo(self._name(leader), leader))
        else:
            raise RpcError(f"shutdown: {self._agent.me} is alone; all other workers have ended")
        if lost:
            raise RpcError(
                f"shutdown: worker {', '.join(lost)} ended without completing shutdown(); the others are done"
            )

    def _go_through_rounds(self, leader: int, deadline: Deadline) -> tuple[str, ...]:
        agent, to = self._agent, self._found(leader)
        self._connect(to, deadline)
        agent.push(agent.control(to, "come", agent.me.id, limit=0, counted=False))
        before, pause, numbers = None, _FIRST_PAUSE, itertools.count()
        while True:
            finish_calls(agent, deadline)
            sums = self._reported(to, next(numbers), deadline)
            if sums.over:
                if to == agent.me:
                    self._rounds.wait_until_left(min(_GRACE, _within(deadline) or _GRACE))
                return sums.lost
            if deadline.expired:  # answers come at once where all others have gone
                raise RpcTimeoutError(_WORK_GOES_ON)
            if sums.counts == before:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            before = sums.counts

    def _reported(self, to: WorkerInfo, number: int, deadline: Deadline) -> Sums:
        """The outcome of a round. At the deadline an `RpcTimeoutError` says who has not come."""
        agent, limit = self._agent, _within(deadline)
        report = number, agent.me.id, agent.counts()
        answer = agent.push(agent.control(to, "report", *report, limit=limit, counted=False))
        try:
            return agent.wait(answer, max(limit - _LAST_WORDS, limit / 2))
        except RpcTimeoutError:
            asked = agent.push(agent.control(to, "missing", limit=0, counted=False))
        try:
            return answer.wait()
        except RpcTimeoutError:
            raise RpcTimeoutError(_why_late(to, asked)) from None


def _why_late(leader: WorkerInfo, asked: Future[list[str]]) -> str:
    try:
        names = asked.value()
    except (FutureError, RpcError):
        return f"there is no answer from {leader.name}"
    return f"{', '.join(names)} has not come" if names else _WORK_GOES_ON


def finish_calls(agent: Agent, deadline: Deadline) -> None:
    """Wait for the answers to all calls; what they raise is their callers' business."""
    while calls := agent.pending():
        for call in calls:
            with suppress(Exception):
                agent.wait(call, _within(deadline))
        names = {agent.me.name if call.pipe is None else call.pipe.peer for call in calls if not call.done()}
        if names and deadline.expired:
            raise RpcTimeoutError(f"there is no answer from {', '.join(sorted(names))}")


def _within(deadline: Deadline) -> float:
    """Seconds for a call that must be answered by then; 0 for no limit."""
    left = deadline.left()
    return 0.0 if left is None else max(left, 1e-3)
