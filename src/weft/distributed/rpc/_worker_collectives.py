"""Collectives of workers, `_all_gather` and `_barrier` of `rpc.api`."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import TypeAlias
from weakref import WeakKeyDictionary

from weft._base.types import Result
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._arguments import begin
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from weft.distributed.rpc.functions import async_execution
from weft.distributed.rpc.internal import RPCExecMode
from weft.errors import RpcError, RpcTimeoutError
from weft.futures import Future

Names = tuple[str, ...]


_Round: TypeAlias = tuple[dict[str, object], Future[Result]]
"""What workers have contributed, by name, and the future of all of it."""


class _Rounds:
    """For each set of names: the number of rounds so far, and the open rounds that this worker leads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: defaultdict[Names, count[int]] = defaultdict(count)
        self._open: defaultdict[tuple[Names, int], _Round]
        self._open = defaultdict(lambda: ({}, Future()))

    def next_number(self, names: Names) -> int:
        """The number of the next round that this worker takes part in; all workers of the names count alike."""
        with self._lock:
            return next(self._numbers[names])

    def contribute(self, names: Names, number: int, name: str, obj: object) -> Future[Result]:
        """Add one worker's object to a round; the future has all objects, by name, when they are complete."""
        with self._lock:
            objects, done = self._open[names, number]
            objects[name] = obj
            complete = len(objects) == len(names)
            if complete:
                # Removed before it is done: the rounds of a job that runs for long would add up.
                del self._open[names, number]
        if complete:
            done.set_result(objects)
        return done

    def abandon(self, names: Names, number: int, name: str) -> None:
        """Fail a round in which a worker has waited too long, unless it is complete or failed before."""
        with self._lock:
            objects, done = self._open.pop((names, number), (None, None))
        if objects is not None and done is not None:
            missing = ", ".join(sorted(set(names) - objects.keys()))
            done.set_exception(RpcError(f"_all_gather: {name} has waited in vain for {missing}"))


_lock = threading.Lock()
_all: WeakKeyDictionary[Agent, _Rounds] = WeakKeyDictionary()


def _rounds_of(agent: Agent) -> _Rounds:
    with _lock:
        return _all.setdefault(agent, _Rounds())


def all_gather(
    obj: object, worker_names: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> dict[str, Result]:
    """Gather the objects that all workers (or those with these names) pass to this function, by name. All must call it.

    The worker whose name comes first collects them. `RuntimeError` after `timeout` seconds (-1: the default, 0: no
    limit), and if that worker is lost.
    """
    agent = current_agent()
    # Sorted, so that all workers choose the same leader without asking each other.
    names = tuple(sorted(set(worker_names or _everybody(agent))))
    number = _rounds_of(agent).next_number(names)
    try:
        return begin(names[0], _contribute, (names, number, agent.me.name, obj), None, timeout, RPCExecMode.SYNC).wait()
    except RpcTimeoutError as error:
        with suppress(RpcError):  # so that no other worker waits for this round
            begin(names[0], _abandon, (names, number, agent.me.name), None, UNSET_RPC_TIMEOUT, RPCExecMode.ASYNC).push()
        if names[0] != agent.me.name:
            raise
        limit = agent.seconds if timeout == UNSET_RPC_TIMEOUT else timeout
        raise RpcTimeoutError(f"timed out in _all_gather after {limit:.2f} seconds: {error}") from None


def barrier(worker_names: Iterable[str]) -> None:
    """Wait until all workers of these names have called this."""
    all_gather(None, worker_names)


def _everybody(agent: Agent) -> list[str]:
    if agent.size is None:
        raise RpcError("_all_gather: workers come and go as they like in this job; name those that take part")
    return [peer.name for peer in agent.workers.everybody()]


@async_execution
def _contribute(names: Names, number: int, name: str, obj: object) -> Future[Result]:
    """Add one worker's object to a round, on the worker that leads it."""
    return _rounds_of(current_agent()).contribute(names, number, name, obj)


def _abandon(names: Names, number: int, name: str) -> None:
    """Fail a round after a worker's timeout, on the worker that leads it."""
    _rounds_of(current_agent()).abandon(names, number, name)
