"""The RPC state of a process, or of each thread that is a rank."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft._base.failing import before_leaving
from weft.errors import RpcError

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent


@dataclass
class RpcState:
    """The agent, which exists between `init_rpc` and `shutdown`."""

    agent: Agent | None = None

    @property
    def is_process(self) -> bool:
        """Whether it is the state of the process, not of a thread."""
        return self is _process

    def close(self, seconds: float | None = None) -> None:
        """Close the agent, if there is one. Running functions get `seconds` to end, and may use it until then."""
        if self.agent is not None:
            before_leaving()
            self.agent.close(seconds)
            self.agent = None


_process = RpcState()


class _ThreadLocal(threading.local):
    here = _process


_thread_local = _ThreadLocal()


def here() -> RpcState:
    """The state of this thread's rank, or else of the process."""
    return _thread_local.here


def set_state(state: RpcState) -> None:
    """Set the state of this thread: a new one if it becomes a rank, or that of another thread."""
    _thread_local.here = state


def state_setter() -> Callable[[], None]:
    """A function by which another thread can take on this thread's state."""
    state = _thread_local.here
    return lambda: set_state(state)


def _forget() -> None:
    """Forget the agent in a forked process, which does not have its threads."""
    _process.agent = _thread_local.here.agent = None


os.register_at_fork(after_in_child=_forget)


NO_AGENT = "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?"
"""The error for references that are created without an agent."""


def current_agent() -> Agent:
    """The agent of this process or rank; `RuntimeError` before `init_rpc` and after `shutdown`."""
    agent = _thread_local.here.agent
    if agent is None:
        raise RpcError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return agent
