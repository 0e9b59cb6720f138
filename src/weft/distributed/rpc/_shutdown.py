"""Graceful shutdown: executes the steps of `_termination.py` by calls between agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import TypeVar

from weft._base.types import Arg, Result
from weft._comm.deadline import Deadline
from weft._comm.tree import split
from weft.distributed.rpc import _termination
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._protocol import AnyRequest, Reply, request
from weft.distributed.rpc._shutdown_state import connect, seconds_left, worker_at
from weft.errors import FutureError, RpcError, RpcTimeoutError
from weft.futures import Future

T = TypeVar("T")

_EXPLAIN_SECONDS = 3.0  # seconds before its deadline at which a worker asks which workers are missing
_LEVEL_SHARE = 0.7  # part of the remaining time that each level of the tree passes on
_WORK_GOES_ON = "all have come or ended, and work goes on"


# --- controls -----------------------------------------------------------------------------


@request(counted=False)
def query(reply: Reply[Agent], stop: int, ended: _termination.Numbers | None) -> None:
    """A `Query`, which this worker answers once it is in `shutdown()`."""
    reply.agent.shutdown_state.events.put(_termination.Query(stop, ended, reply))


@request(counted=False)
def missing(reply: Reply[Agent], stop: int, seconds: float) -> None:
    """Answered with the names of the workers from this one to number `stop` that are not in `shutdown()`.

    A worker that is not in `shutdown()` itself answers at once, and only for itself.
    """
    # A worker that has not come runs functions, and under load its pool had no answer in time; so its answer does not
    # wait for a thread.
    if reply.agent.shutdown_state.begun:
        reply.run_in_turn(_send_missing, stop, seconds)
    else:
        reply.send([reply.agent.me.name])


def _send_missing(reply: Reply[Agent], stop: int, seconds: float) -> None:
    reply.send(_not_arrived(reply.agent, range(reply.agent.me.id + 1, stop), Deadline(seconds)))


def _not_arrived(agent: Agent, numbers: range, deadline: Deadline) -> list[str]:
    """The names of those among `numbers` that are not in `shutdown()`, or do not answer."""
    names: list[str] = []
    # Each level of the tree must answer before the one above it gives up, or the names that it has found are lost.
    share = Deadline(_LEVEL_SHARE * seconds_left(deadline))
    calls = [(part, _ask(agent, part.start, share, missing, part.stop, share.seconds)) for part in split(numbers)]
    for part, call in calls:
        try:
            names += agent.wait(call, seconds_left(share))
        except RpcTimeoutError:
            names.append(_name(agent, part.start))
        except RpcError:  # it has ended
            names += _not_arrived(agent, part[1:], deadline)
    return names


# --- connecting ----------------------------------------------------------------------------------------------


def _name(agent: Agent, number: int) -> str:
    workers = agent.workers
    if number not in workers.names:
        with suppress(RpcError):
            worker = workers.find(number)
            return str(number) if worker is None else worker.name
    return workers.names.get(number, str(number))


def _ask(agent: Agent, number: int, deadline: Deadline, request: AnyRequest, *args: Arg) -> Future[Result]:
    """Connect to a worker and start a call; returns a future of the answer, or of the error of either."""
    try:
        to = worker_at(agent, number)
        connect(agent, to, deadline)
        return agent.ask(to, request, *args, limit=0).push()
    except RpcError as error:
        failed = Future[Result]()
        failed.set_exception(error)
        return failed


# --- leaving ----------------------------------------------------------------------------------------------------


def graceful_shutdown(agent: Agent, deadline: Deadline) -> None:
    """Return when the work of all workers is over.

    `RuntimeError` at the deadline; also at the end, if some workers have ended before the work was over.
    """
    assert agent.size is not None
    me, outcome = agent.me, None
    agent.shutdown_state.begun = True
    steps = _termination.detect_termination(me.id, agent.size)
    try:
        while True:
            outcome = _execute(agent, steps.send(outcome), deadline)
    except StopIteration as end:
        ended = [_name(agent, number) for number in sorted(end.value)]
    except RpcTimeoutError as error:
        raise RpcError(
            f"shutdown: {me} waited {deadline.seconds:g} s for the other workers to come to "
            f"shutdown(), or for work to end: {error}; allow more time, or leave with graceful=False"
        ) from None
    if ended:
        raise RpcError(f"shutdown: worker {', '.join(ended)} ended without completing shutdown(); the others are done")


def _execute(agent: Agent, step: _termination.Step, deadline: Deadline) -> Result:
    """Execute a step, and return its outcome. At the deadline, `RpcTimeoutError` says what was waited for."""
    match step:
        case _termination.Watch(number):
            agent.shutdown_state.watch(number)
        case _termination.Await(None):
            return _wait_or_explain(agent, deadline, lambda until: _next_event(agent, until))
        case _termination.Await(seconds):
            # Without this check the leader would begin rounds beyond the deadline.
            if deadline.expired:  # if all others have ended, answers arrive at once
                raise RpcTimeoutError(_explanation(agent.shutdown_state.inquiry))
            with suppress(RpcTimeoutError):
                return _next_event(agent, Deadline(seconds))
        case _termination.FinishCalls():
            finish_calls(agent, deadline)
            return agent.counts()
        case _termination.Ask(parts, ended):
            calls: dict[range, Future[_termination.Report]] = {}
            return _wait_or_explain(agent, deadline, lambda until: _reports(agent, parts, ended, calls, until))
        case _termination.SendReport(received, report):
            received.reply.send(report)
    return None


def _next_event(agent: Agent, until: Deadline) -> _termination.Query | _termination.Ended:
    agent.reactor.yield_leadership()
    try:
        return agent.shutdown_state.events.get(timeout=until.left())
    except Empty:
        raise RpcTimeoutError from None


def _reports(
    agent: Agent,
    parts: list[range],
    ended: _termination.Numbers | None,
    calls: dict[range, Future[_termination.Report]],
    until: Deadline,
) -> list[_termination.Report | None]:
    """The reports of some parts; None if the first worker of a part has ended. `calls` are those already started."""
    for part in parts:
        if part not in calls:
            calls[part] = _ask(agent, part.start, until, query, part.stop, ended)
    reports: list[_termination.Report | None] = []
    for part in parts:
        try:
            reports.append(agent.wait(calls[part], seconds_left(until)))
        except RpcTimeoutError:
            # The wait may be cut in two, before and after the missing workers are asked for; a query that has been sent
            # stays as it is, since another one would be a second event for its receiver.
            if calls[part].done():  # no connection could be made in time
                del calls[part]
            raise
        except RpcError:
            reports.append(None)
    return reports


def _wait_or_explain(agent: Agent, deadline: Deadline, wait: Callable[[Deadline], T]) -> T:
    """Return `wait(deadline)`; at the deadline, an `RpcTimeoutError` names the missing workers.

    The leader is asked for their names once, shortly before the deadline. When other workers give up, that is an event,
    too, but then there is no time left to ask again.
    """
    left, state = deadline.left(), agent.shutdown_state
    if left is None:
        return wait(deadline)
    # Asked once: a worker that gave up first changed what the others were told, since its end is an event for those
    # that watch it, with no time left to ask again.
    if state.inquiry is None:
        with suppress(RpcTimeoutError):
            return wait(Deadline(max(left - _EXPLAIN_SECONDS, left / 2)))
        leader = _leader(agent, deadline)
        names = _ask(agent, leader, deadline, missing, agent.size, _LEVEL_SHARE * seconds_left(deadline))
        state.inquiry = _name(agent, leader), names
    try:
        return wait(deadline)
    except RpcTimeoutError:
        raise RpcTimeoutError(_explanation(state.inquiry)) from None


def _leader(agent: Agent, deadline: Deadline) -> int:
    """The first living worker."""
    for number in range(agent.me.id):
        try:
            connect(agent, worker_at(agent, number), Deadline(seconds_left(deadline) / 2))
        except RpcTimeoutError:
            return number
        except RpcError:
            continue
        return number
    return agent.me.id


def _explanation(inquiry: tuple[str, Future[list[str]]] | None) -> str:
    if inquiry is None:
        return _WORK_GOES_ON
    leader, missing = inquiry
    try:
        names = missing.value()
    except (FutureError, RpcError):
        return f"there is no answer from {leader}"
    return f"{', '.join(names)} has not come" if names else _WORK_GOES_ON


def finish_calls(agent: Agent, deadline: Deadline) -> None:
    """Wait for the answers to all calls; their errors are ignored here."""
    while calls := agent.calls.pending():
        for call in calls:
            with suppress(Exception):
                agent.wait(call, seconds_left(deadline))
        names = {agent.me.name if call.pipe is None else call.pipe.peer for call in calls if not call.done()}
        if names and deadline.expired:
            raise RpcTimeoutError(f"there is no answer from {', '.join(sorted(names))}")
