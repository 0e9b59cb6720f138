"""The arguments of a call: checks, and the worker that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._base.types import AnyCallable, Arg
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._call import PendingCall
from weft.distributed.rpc._profiled_call import profiled
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import AnyWorker, WorkerInfo
from weft.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from weft.distributed.rpc.internal import RPCExecMode
from weft.errors import ArgumentError, RpcError, ValueRangeError

_MOST_NAMES = 20  # the largest number of workers that an error names


def begin(
    to: AnyWorker,
    func: AnyCallable,
    args: Sequence[Arg] | None,
    kwargs: Mapping[str, Arg] | None,
    timeout: float,
    mode: RPCExecMode,
) -> PendingCall:
    """Start a call; its request may not be sent yet."""
    agent = current_agent()
    args, kwargs = checked(func, args, kwargs)
    return start(agent, worker(agent, to), func, args, kwargs, timeout, mode)


def start(
    agent: Agent, to: WorkerInfo, func: Arg, args: Arg, kwargs: Arg, timeout: float, mode: RPCExecMode
) -> PendingCall:
    """The same of arguments that were checked."""
    return agent.call(to, profiled(agent.me, to, func, mode), args, kwargs, seconds(timeout))


def checked(
    func: object, args: Sequence[Arg] | None, kwargs: Mapping[str, Arg] | None
) -> tuple[Sequence[Arg], Mapping[str, Arg]]:
    """The arguments of a call; `TypeError` if the function cannot be called, or the arguments have wrong types."""
    if not callable(func):
        raise ArgumentError("function should be callable.")
    if not _is_args(args):
        raise ArgumentError(
            f"args must be a tuple of the function's arguments, got {type(args).__name__}; for one argument x write "
            "args=(x,)"
        )
    if not _is_kwargs(kwargs):
        raise ArgumentError(f"kwargs must be a dict of the function's arguments by name, got {type(kwargs).__name__}")
    return args or (), kwargs or {}


def _is_args(args: object) -> bool:
    return args is None or isinstance(args, (tuple, list))


def _is_kwargs(kwargs: object) -> bool:
    return kwargs is None or isinstance(kwargs, Mapping)


def worker(agent: Agent, to: object) -> WorkerInfo:
    """The worker given by a name, a number or a `WorkerInfo`: the one that has the name now."""
    if isinstance(to, WorkerInfo):
        to = to.name
    if not isinstance(to, (str, int)):
        raise ValueRangeError(f"Cannot get WorkerInfo from name {to}")
    info = agent.workers.find(to)
    if info is not None and info != agent.me and agent.peers.existing(info) is None:
        info = agent.workers.find_again(info)
    if info is None:
        raise RpcError(_unknown(agent, to))
    return info


def _unknown(agent: Agent, to: str | int) -> str:
    by_name = isinstance(to, str)
    names = [str(one.name if by_name else one.id) for one in agent.workers.everybody()]
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    wait = "; without a world_size workers join when they like: it may not have joined yet, or has left"
    return (
        f"name:{agent.me.name},rank:{agent.me.id} could not find destination {'name' if by_name else 'id'} {to}; "
        f"known are {', '.join(names[:_MOST_NAMES])}{rest}{wait if agent.size is None else ''}"
    )


def seconds(timeout: object) -> float | None:
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
