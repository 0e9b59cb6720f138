"""What a worker knows of its shutdown, and its connections to the workers that it waits for."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import Protocol

from weft._comm.deadline import Deadline
from weft._comm.transport.reactor import Reactor
from weft.distributed.rpc import _termination
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import RpcError, RpcTimeoutError
from weft.futures import Future

_REACH = 10.0  # seconds of one attempt to connect to a worker


class ConnectingAgent(Protocol):
    """An agent, as far as connecting for the shutdown needs it."""

    workers: Workers
    peers: Peers
    reactor: Reactor
    closing: bool


class ShutdownState:
    """The events of a worker's shutdown, and requests that others have sent before it began."""

    def __init__(self, agent: ConnectingAgent) -> None:
        self.begun = False
        self.events: SimpleQueue[_termination.Query | _termination.Ended] = SimpleQueue()
        self.inquiry: tuple[str, Future[list[str]]] | None = None
        """Who was asked, shortly before the deadline, which workers are missing, and the answer."""
        self._agent = agent
        self._watched = -1

    def watch(self, number: int) -> None:
        """Report the end of a worker as an event. One that does not answer is waited for."""
        self._watched = number
        self._agent.reactor.run(partial(self._connect, number))

    def lost(self, worker: WorkerInfo) -> None:
        """A connection to a worker has ended; another one may have its number by now."""
        if worker.id == self._watched:
            self.watch(worker.id)

    def _connect(self, number: int) -> None:
        try:
            connect(self._agent, worker_at(self._agent, number), Deadline(None))
        except RpcError:
            self.events.put(_termination.Ended(number))


# --- connecting ---


def worker_at(agent: ConnectingAgent, number: int) -> WorkerInfo:
    """The worker of a number; `RpcError` if it has left."""
    worker = agent.workers.find(number)
    if worker is None:
        raise RpcError(f"worker {number} has left")
    return worker


def connect(agent: ConnectingAgent, to: WorkerInfo, deadline: Deadline) -> None:
    """Connect to a worker, so that its end is noticed; one that does not answer is waited for.

    `RpcError` where it has ended, and at the deadline an `RpcTimeoutError`.
    """
    while not agent.closing:
        try:
            agent.peers.reach(to, min(_REACH, seconds_left(deadline) or _REACH))
            return
        except RpcTimeoutError:  # it is stopped, or busy
            if deadline.expired:
                raise


def seconds_left(deadline: Deadline) -> float:
    """Seconds for a call that must be answered by then; 0 for no limit."""
    left = deadline.left()
    return 0.0 if left is None else max(left, 1e-3)
