"""The part of a process in a job: that of the process, or of each of its threads that is a rank of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import RpcError

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent


@dataclass
class Here:
    """The agent, between `init_rpc` and `shutdown`, and how often there was one."""

    agent: Agent | None = None
    begun: int = 0

    @property
    def is_process(self) -> bool:
        """Whether it is the process's own."""
        return self is _process

    def close(self, seconds: float | None = None) -> None:
        """Leave at once, if there is an agent; functions under way get some seconds, and have it until then."""
        if self.agent is not None:
            self.agent.close(seconds)
            self.agent = None


_process = Here()


class _Thread(threading.local):
    here = _process


_thread = _Thread()


def here() -> Here:
    """That of this thread's rank, or of the process."""
    return _thread.here


def become(part: Here) -> None:
    """Have this thread take part as a rank of its own, or as one that there is."""
    _thread.here = part


def entrance() -> Callable[[], None]:
    """What makes a further thread take part as this one does."""
    part = _thread.here
    return lambda: become(part)


def _forget() -> None:
    """A fork has none of the agents' threads."""
    _process.agent = _thread.here.agent = None


os.register_at_fork(after_in_child=_forget)


NO_AGENT = "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?"
"""What is said where references are made without an agent."""


def current_agent() -> Agent:
    """The agent of this process, or rank; `RuntimeError` before `init_rpc` and after `shutdown`."""
    agent = _thread.here.agent
    if agent is None:
        raise RpcError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return agent
