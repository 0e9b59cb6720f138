"""Figures of a worker for who looks on from outside."""

from __future__ import annotations

import os
import socket
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent


class Status(NamedTuple):
    """What a worker tells of itself; `time` is in seconds of its own clock, sums are since it has joined."""

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


class StatusControls:
    """What visitors ask for."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def status(self) -> Status:
        agent = self._agent
        figures = agent.figures()
        return Status(
            socket.gethostname(), os.getpid(), perf_counter(), agent.traffic.served, agent.hub.running,
            figures["num_pending_calls"], *agent.peers.traffic(), agent.references.figures()["num_owner_rrefs"],
            figures["num_threads"], figures["num_connections"],
        )  # fmt: skip
