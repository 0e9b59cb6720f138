"""This process's part in the job."""

from __future__ import annotations

import os
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


here = Here()


def _forget() -> None:
    """A fork has none of the agent's threads."""
    here.agent = None


os.register_at_fork(after_in_child=_forget)


NO_AGENT = "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?"
"""What is said where references are made without an agent."""


def current_agent() -> Agent:
    """The agent of this process; `RuntimeError` before `init_rpc` and after `shutdown`."""
    if here.agent is None:
        raise RpcError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return here.agent
