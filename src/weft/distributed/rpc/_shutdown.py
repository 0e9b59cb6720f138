"""How the workers of a job end together: they report to the first of them that lives (`_rounds.py`), which watches all
of them meanwhile."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from weft._comm.deadline import Deadline
from weft.distributed.rpc._protocol import Reply, request
from weft.distributed.rpc._rounds import Sums
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


# --- what the others ask of the first one -----------------------------------------------------------------------


@request(counted=False)
def come(reply: Reply, worker: int) -> None:
    """A worker has come to the end."""
    reply.agent.rounds.come(worker)
    reply.send(None)


@request(counted=False)
def report(reply: Reply, number: int, worker: int, counts: Counts) -> None:
    """A worker has come to the end, and its calls are done. From the first one on, this one watches all others."""
    agent = reply.agent
    if not agent.rounds.watching:
        agent.rounds.watching = True
        agent.hub.run(lambda: _reach_all(agent))
    reply.follow(agent.rounds.report(number, worker, counts))


@request(counted=False)
def missing(reply: Reply) -> None:
    """The names of those who have not come to the end."""
    reply.send([_name(reply.agent, number) for number in reply.agent.rounds.missing()])


def _reach_all(agent: Agent) -> None:
    for number in range(agent.rounds.size):
        try:
            _connect(agent, _worker(agent, number), Deadline(None))
        except RpcError:
            agent.rounds.lost(WorkerInfo(_name(agent, number), number))


def _name(agent: Agent, number: int) -> str:
    workers = agent.workers
    if number not in workers.names:  # who reports may have joined before this one has learnt of all
        with suppress(RpcError):
            worker = workers.find(number)
            return str(number) if worker is None else worker.name
    return workers.names.get(number, str(number))


def _worker(agent: Agent, number: int) -> WorkerInfo:
    worker = agent.workers.find(number)
    if worker is None:
        raise RpcError(f"worker {number} has left")
    return worker


def _connect(agent: Agent, to: WorkerInfo, deadline: Deadline) -> None:
    """Connect to a worker, so that its end is told; one that does not answer is waited for.

    `RpcError` where it has ended, and at the deadline an `RpcTimeoutError`.
    """
    while to != agent.me and not agent.closing:
        try:
            agent.peers.reach(to, min(_REACH, _within(deadline) or _REACH))
            return
        except RpcTimeoutError:  # it is stopped, or busy
            if deadline.expired:
                raise


# --- leaving ----------------------------------------------------------------------------------------------------


def leave_together(agent: Agent, deadline: Deadline) -> None:
    """Return when the work of all workers is over.

    `RuntimeError` at the deadline, or, when the work of the others is over, where some ended before it was over.
    """
    rounds, me = agent.rounds, agent.me
    rounds.come(me.id)
    for leader in range(rounds.size):
        try:
            lost = _go_through_rounds(agent, leader, deadline)
            break
        except RpcTimeoutError as error:
            raise RpcError(
                f"shutdown: {me} waited {deadline.seconds:g} s for the other workers to come to "
                f"shutdown(), or for work to end: {error}; allow more time, or leave with graceful=False"
            ) from None
        except RpcError:
            if leader == me.id:
                raise
            rounds.lost(WorkerInfo(_name(agent, leader), leader))
    else:
        raise RpcError(f"shutdown: {me} is alone; all other workers have ended")
    if lost:
        raise RpcError(f"shutdown: worker {', '.join(lost)} ended without completing shutdown(); the others are done")


def _go_through_rounds(agent: Agent, leader: int, deadline: Deadline) -> tuple[str, ...]:
    to = _worker(agent, leader)
    _connect(agent, to, deadline)
    agent.ask(to, come, agent.me.id, limit=0).push()
    before, pause, numbers = None, _FIRST_PAUSE, itertools.count()
    while True:
        finish_calls(agent, deadline)
        sums = _reported(agent, to, next(numbers), deadline)
        if sums.over:
            if to == agent.me:
                agent.rounds.wait_until_left(min(_GRACE, _within(deadline) or _GRACE))
            return sums.lost
        if deadline.expired:  # answers come at once where all others have gone
            raise RpcTimeoutError(_WORK_GOES_ON)
        if sums.counts == before:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        before = sums.counts


def _reported(agent: Agent, to: WorkerInfo, number: int, deadline: Deadline) -> Sums:
    """The outcome of a round. At the deadline an `RpcTimeoutError` says who has not come."""
    limit = _within(deadline)
    answer = agent.ask(to, report, number, agent.me.id, agent.counts(), limit=limit).push()
    try:
        return agent.wait(answer, max(limit - _LAST_WORDS, limit / 2))
    except RpcTimeoutError:
        asked = agent.ask(to, missing, limit=0).push()
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
    while calls := agent.calls.pending():
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
