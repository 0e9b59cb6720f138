"""Collectives of workers: `_all_gather` and `_barrier`."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._arguments import begin
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from weft.distributed.rpc.functions import async_execution
from weft.errors import RpcError, RpcTimeoutError
from weft.futures import Future

Names = tuple[str, ...]


class _Rounds:
    """For each set of names: the number of rounds so far, and the open rounds that this worker leads."""

    def __init__(self) -> None:
        self.numbers: defaultdict[Names, count[int]] = defaultdict(count)
        self.open: defaultdict[tuple[Names, int], tuple[dict[str, Any], Future[Any]]]
        self.open = defaultdict(lambda: ({}, Future()))


_lock = threading.Lock()
_all: WeakKeyDictionary[Agent, _Rounds] = WeakKeyDictionary()


def _all_gather(
    obj: Any, worker_names: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> dict[str, Any]:
    """Gather the objects that all workers (or those with these names) pass to this function, by name. All must call it.

    The worker whose name comes first collects them. `RuntimeError` after `timeout` seconds (-1: the default, 0: no
    limit), and if that worker is lost.
    """
    agent = current_agent()
    names = tuple(sorted(set(worker_names or _everybody(agent))))
    with _lock:
        number = next(_all.setdefault(agent, _Rounds()).numbers[names])
    try:
        return begin(names[0], _contribute, (names, number, agent.me.name, obj), None, timeout).wait()
    except RpcTimeoutError as error:
        with suppress(RpcError):  # so that no other worker waits for this round
            begin(names[0], _abandon, (names, number, agent.me.name), None, UNSET_RPC_TIMEOUT).push()
        if names[0] != agent.me.name:
            raise
        limit = agent.seconds if timeout == UNSET_RPC_TIMEOUT else timeout
        raise RpcTimeoutError(f"timed out in _all_gather after {limit:.2f} seconds: {error}") from None


def _barrier(worker_names: Iterable[str]) -> None:
    """Wait until all workers of these names have called this."""
    _all_gather(None, worker_names)


def _everybody(agent: Agent) -> list[str]:
    if agent.size is None:
        raise RpcError("_all_gather: workers come and go as they like in this job; name those that take part")
    return [peer.name for peer in agent.workers.everybody()]


@async_execution
def _contribute(names: Names, number: int, name: str, obj: Any) -> Future[Any]:
    """Add one worker's object to a round, on the worker that leads it; the future has all objects."""
    with _lock:
        rounds = _all.setdefault(current_agent(), _Rounds())
        objects, done = rounds.open[names, number]
        objects[name] = obj
        complete = len(objects) == len(names)
        if complete:
            del rounds.open[names, number]
    if complete:
        done.set_result(objects)
    return done


def _abandon(names: Names, number: int, name: str) -> None:
    """Fail a round after a worker's timeout, on the worker that leads it."""
    with _lock:
        objects, done = _all.setdefault(current_agent(), _Rounds()).open.pop((names, number), ({}, None))
    if done is not None:
        missing = ", ".join(sorted(set(names) - objects.keys()))
        done.set_exception(RpcError(f"_all_gather: {name} has waited in vain for {missing}"))
