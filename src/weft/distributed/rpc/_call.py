"""What the arguments of a call mean."""

from __future__ import annotations

from typing import Any

from weft.distributed.rpc._agent import Agent, Call
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import WorkerInfo
from weft.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from weft.errors import ArgumentError, RpcError, ValueRangeError


def begin(to: Any, func: Any, args: Any, kwargs: Any, timeout: float) -> Call:
    """A call that nobody waits for yet."""
    agent = current_agent()
    require_callable(func)
    return agent.call(worker(agent, to), func, args or (), kwargs or {}, seconds(timeout))


def require_callable(func: Any) -> None:
    """`TypeError` for what cannot be called."""
    if not callable(func):
        raise ArgumentError("function should be callable.")


def worker(agent: Agent, to: Any) -> WorkerInfo:
    """The worker that a name, a number or a `WorkerInfo` means: the one that has the name now."""
    if isinstance(to, WorkerInfo):
        to = to.name
    if not isinstance(to, (str, int)):
        raise ValueRangeError(f"Cannot get WorkerInfo from name {to}")
    found = agent.workers.find(to)
    if found is not None and found != agent.me and agent.peers.known(found) is None:
        found = agent.workers.find_again(found)
    if found is None:
        what = "name" if isinstance(to, str) else "id"
        raise RpcError(f"name:{agent.me.name},rank:{agent.me.id} could not find destination {what} {to}")
    return found


def seconds(timeout: float) -> float | None:
    """How long a call may take: None for the default, 0 for no limit."""
    if timeout == UNSET_RPC_TIMEOUT:
        return None
    if not isinstance(timeout, (int, float)):
        raise ArgumentError(f"timeout must be a number of seconds, but got {timeout!r}")
    if not timeout >= 0:
        raise RpcError(
            f"timeout must be a number of seconds, 0 for no limit, or {UNSET_RPC_TIMEOUT:g} for the default; got "
            f"{timeout:g}"
        )
    return timeout
