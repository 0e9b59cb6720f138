"""How the workers of a job end together: what `_rounds.py` decides, carried out by calls between agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from weft._comm.deadline import Deadline
from weft._comm.tree import split
from weft.distributed.rpc import _rounds
from weft.distributed.rpc._protocol import Reply, request
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import FutureError, RpcError, RpcTimeoutError
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent

T = TypeVar("T")

_REACH = 10.0  # seconds in which a worker must answer that is said to be there
_LAST_WORDS = 1.0  # seconds before its deadline at which a worker asks who has not come
_EACH_LEVEL = 0.7  # of the time that is left goes to those who are asked next who has not come
_WORK_GOES_ON = "all have come or ended, and work goes on"


class Leaving:
    """What happens to a worker while it leaves, and what others have asked of it before."""

    def __init__(self, agent: Agent) -> None:
        self.begun = False
        self.events: SimpleQueue[_rounds.Query | _rounds.Ended] = SimpleQueue()
        self._agent = agent
        self._watched = -1

    def watch(self, number: int) -> None:
        """Have the end of a worker be an event. One that does not answer is waited for."""
        self._watched = number
        self._agent.reactor.run(partial(self._connect, number))

    def lost(self, worker: WorkerInfo) -> None:
        """A connection to a worker has ended; another one may have its number by now."""
        if worker.id == self._watched:
            self.watch(worker.id)

    def _connect(self, number: int) -> None:
        try:
            _connect(self._agent, _worker(self._agent, number), Deadline(None))
        except RpcError:
            self.events.put(_rounds.Ended(number))


# --- what workers ask of each other -----------------------------------------------------------------------------


@request(counted=False)
def query(reply: Reply, stop: int, ended: _rounds.Numbers | None) -> None:
    """Report for some workers, or hear that the work is over, as `Query` says: when this worker is in `shutdown()`."""
    reply.agent.leaving.events.put(_rounds.Query(stop, ended, reply))


@request(counted=False)
def missing(reply: Reply, stop: int, seconds: float) -> None:
    """The names of those from this worker to number `stop` that have not come to the end."""
    reply.run_in_turn(_send_missing, stop, seconds)


def _send_missing(reply: Reply, stop: int, seconds: float) -> None:
    reply.send(_missing(reply.agent, range(reply.agent.me.id, stop), Deadline(seconds)))


def _missing(agent: Agent, numbers: range, deadline: Deadline) -> list[str]:
    """The same for some workers, of which this one may be the first; who does not answer has not come."""
    names = []
    if agent.me.id == numbers[0]:
        names += [] if agent.leaving.begun else [agent.me.name]
        numbers = numbers[1:]
    within = Deadline(_EACH_LEVEL * _within(deadline))
    calls = [(part, _asked(agent, part.start, within, missing, part.stop, within.seconds)) for part in split(numbers)]
    for part, call in calls:
        try:
            names += agent.wait(call, _within(within))
        except RpcTimeoutError:
            names.append(_name(agent, part.start))
        except RpcError:  # it has ended
            names += _missing(agent, part[1:], deadline) if len(part) > 1 else []
    return names


# --- reaching them ----------------------------------------------------------------------------------------------


def _name(agent: Agent, number: int) -> str:
    workers = agent.workers
    if number not in workers.names:
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
    while not agent.closing:
        try:
            agent.peers.reach(to, min(_REACH, _within(deadline) or _REACH))
            return
        except RpcTimeoutError:  # it is stopped, or busy
            if deadline.expired:
                raise


def _asked(agent: Agent, number: int, deadline: Deadline, request: Any, *args: Any) -> Future[Any]:
    """The answer of a worker, to which this one connects first; what goes wrong is in the future."""
    try:
        to = _worker(agent, number)
        _connect(agent, to, deadline)
        return agent.ask(to, request, *args, limit=0).push()
    except RpcError as error:
        unasked = Future[Any]()
        unasked.set_exception(error)
        return unasked


# --- leaving ----------------------------------------------------------------------------------------------------


def leave_together(agent: Agent, deadline: Deadline) -> None:
    """Return when the work of all workers is over.

    `RuntimeError` at the deadline, or, when the work of the others is over, where some ended before it was over.
    """
    assert agent.size is not None
    me, outcome = agent.me, None
    agent.leaving.begun = True
    steps = _rounds.take_part(me.id, agent.size)
    try:
        while True:
            outcome = _carried_out(agent, steps.send(outcome), deadline)
    except StopIteration as end:
        ended = [_name(agent, number) for number in sorted(end.value)]
    except RpcTimeoutError as error:
        raise RpcError(
            f"shutdown: {me} waited {deadline.seconds:g} s for the other workers to come to "
            f"shutdown(), or for work to end: {error}; allow more time, or leave with graceful=False"
        ) from None
    if ended:
        raise RpcError(f"shutdown: worker {', '.join(ended)} ended without completing shutdown(); the others are done")


def _carried_out(agent: Agent, step: _rounds.Step, deadline: Deadline) -> Any:
    """What came of a step. `RpcTimeoutError` at the deadline, which says what was waited for."""
    match step:
        case _rounds.Watch(number):
            agent.leaving.watch(number)
        case _rounds.Await(None):
            return _in_time(agent, deadline, lambda until: _next_event(agent, until))
        case _rounds.Await(seconds):
            if deadline.expired:  # answers come at once where all others have ended
                raise RpcTimeoutError(_WORK_GOES_ON)
            with suppress(RpcTimeoutError):
                return _next_event(agent, Deadline(seconds))
        case _rounds.Settle():
            finish_calls(agent, deadline)
            return agent.counts()
        case _rounds.Ask(parts, ended):
            calls: dict[range, Future[_rounds.Report]] = {}
            return _in_time(agent, deadline, lambda until: _reports(agent, parts, ended, calls, until))
        case _rounds.Answer(asked, report):
            asked.reply.send(report)
    return None


def _next_event(agent: Agent, until: Deadline) -> _rounds.Query | _rounds.Ended:
    agent.reactor.yield_leadership()
    try:
        return agent.leaving.events.get(timeout=until.left())
    except Empty:
        raise RpcTimeoutError from None


def _reports(
    agent: Agent,
    parts: list[range],
    ended: _rounds.Numbers | None,
    calls: dict[range, Future[_rounds.Report]],
    until: Deadline,
) -> list[_rounds.Report | None]:
    """The reports for some parts, None where the first of one has ended; `calls` are those that have been begun."""
    for part in parts:
        if part not in calls:
            calls[part] = _asked(agent, part.start, until, query, part.stop, ended)
    reports: list[_rounds.Report | None] = []
    for part in parts:
        try:
            reports.append(agent.wait(calls[part], _within(until)))
        except RpcTimeoutError:
            if calls[part].done():  # it could not be connected to in time
                del calls[part]
            raise
        except RpcError:
            reports.append(None)
    return reports


def _in_time(agent: Agent, deadline: Deadline, wait: Callable[[Deadline], T]) -> T:
    """What somebody waits for; at the deadline an `RpcTimeoutError` says who has not come, which is asked before."""
    left = deadline.left()
    if left is None:
        return wait(deadline)
    with suppress(RpcTimeoutError):
        return wait(Deadline(max(left - _LAST_WORDS, left / 2)))
    leader = _leader(agent, deadline)
    names = _asked(agent, leader, deadline, missing, agent.size, _EACH_LEVEL * _within(deadline))
    try:
        return wait(deadline)
    except RpcTimeoutError:
        raise RpcTimeoutError(_why_late(_name(agent, leader), names)) from None


def _leader(agent: Agent, deadline: Deadline) -> int:
    """The first worker that lives."""
    for number in range(agent.me.id):
        try:
            _connect(agent, _worker(agent, number), Deadline(_within(deadline) / 2))
        except RpcTimeoutError:
            return number
        except RpcError:
            continue
        return number
    return agent.me.id


def _why_late(leader: str, missing: Future[list[str]]) -> str:
    try:
        names = missing.value()
    except (FutureError, RpcError):
        return f"there is no answer from {leader}"
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
