"""The status of a worker, for observers."""

from __future__ import annotations

import os
import socket
from time import perf_counter
from typing import NamedTuple

from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._protocol import Reply, request


class WorkerStatus(NamedTuple):
    """The status of a worker. `time` is in seconds of its own clock; sums are counted since it has joined."""

    host: str
    process: int
    time: float
    served: int
    running: int
    waiting: int
    bytes_in: int
    bytes_out: int
    rrefs: int
    threads: int
    connections: int


@request(counted=False)
def status(reply: Reply[Agent]) -> None:
    """Answered with the status of this worker."""
    agent = reply.agent
    figures = agent.figures()
    answer = WorkerStatus(
        socket.gethostname(),
        os.getpid(),
        perf_counter(),
        agent.call_counts.served,
        agent.reactor.running,
        figures["num_pending_calls"],
        *agent.peers.traffic(),
        agent.references.figures()["num_owner_rrefs"],
        figures["num_threads"],
        figures["num_connections"],
    )
    reply.send(answer)
