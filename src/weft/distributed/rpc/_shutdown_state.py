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
    """The events of a worker's shutdown, including requests of others that have arrived before it began."""

    def __init__(self, agent: ConnectingAgent) -> None:
        self.begun = False
        self.events: SimpleQueue[_termination.Query | _termination.Ended] = SimpleQueue()
        self.inquiry: tuple[str, Future[list[str]]] | None = None
        """The worker that was asked for the missing workers shortly before the deadline, and a future of its answer."""
        self._agent = agent
        self._watched = -1

    def watch(self, number: int) -> None:
        """Report the end of a worker as an event. If it does not answer, this waits for it."""
        self._watched = number
        self._agent.reactor.run(partial(self._connect, number))

    def lost(self, worker: WorkerInfo) -> None:
        """Handle the end of a connection to a worker, whose number another one may have by now."""
        # Connecting again tells whether the worker has ended, or only the connection.
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
    """Connect to a worker, so that its end is noticed. If it does not answer, this waits for it.

    `RpcError` if it has ended; `RpcTimeoutError` at the deadline.
    """
    while not agent.closing:
        try:
            agent.peers.reach(to, min(_REACH, seconds_left(deadline) or _REACH))
            return
        except RpcTimeoutError:  # it is stopped, or busy
            if deadline.expired:
                raise


def seconds_left(deadline: Deadline) -> float:
    """Seconds until the deadline, as the timeout of a call; 0 for no limit."""
    left = deadline.left()
    return 0.0 if left is None else max(left, 1e-3)
