"""The public functions of `rpc`: joining, calling, leaving."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypeVar

from weft._base.failing import before_leaving
from weft._base.guards import is_int
from weft._base.leaving import forget, leave_at_exit
from weft._base.types import AnyCallable, Arg, Result
from weft._base.usage import log_api_usage_once
from weft._comm.deadline import Deadline
from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft.distributed._world import thread_rank
from weft.distributed.rendezvous import rendezvous
from weft.distributed.rpc import backend_registry
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._arguments import begin, seconds, worker
from weft.distributed.rpc._rref import RRef as RRef
from weft.distributed.rpc._rref import remote as remote
from weft.distributed.rpc._shutdown import finish_calls, graceful_shutdown
from weft.distributed.rpc._state import NO_AGENT, current_agent, here
from weft.distributed.rpc._worker_collectives import all_gather, barrier
from weft.distributed.rpc._workers import AnyWorker, WorkerInfo, check_name
from weft.distributed.rpc.constants import DEFAULT_INIT_METHOD, DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from weft.distributed.rpc.internal import RPCExecMode
from weft.distributed.rpc.options import RpcBackendOptions, TensorPipeRpcBackendOptions
from weft.errors import ArgumentError, RpcError, ValueRangeError
from weft.futures import Future, wait_all

P = ParamSpec("P")
R = TypeVar("R")

TensorPipeAgent = Agent
"""PyTorch's name of the default backend's agent."""

_ANY = 0  # world size of a job that workers may join at any time: its store waits for nobody
_PATIENCE = timedelta(minutes=5)  # for workers that have not joined
_END_SECONDS = 1.0  # that running functions have when their process ends


def init_rpc(
    name: str,
    backend: Arg = None,
    rank: int | None = -1,
    world_size: int | None = None,
    rpc_backend_options: Arg = None,
) -> None:
    """Join the other workers of the job, under a unique name; returns when all have joined.

    The options say where workers meet, by default the environment (set by `weft run`), which also gives the rank and
    the world size if neither is given. Otherwise, without `world_size`, this waits for nobody: workers join and leave
    at any time, and those without a `rank` (-1 or None) are numbered as they join; if they meet at a network address, a
    worker of rank 0 must join first, to serve the store. `RuntimeError` if a living worker has the name or rank, and if
    workers have not joined within 300 seconds.
    """
    log_api_usage_once("torch.distributed.init_rpc")
    state = here()
    if state.agent is not None:
        raise RpcError("RPC is already initialized")
    check_name(name)
    if backend is not None and not backend_registry.is_backend(backend):
        raise ArgumentError("Argument backend must be a member of BackendType")
    options = TensorPipeRpcBackendOptions() if rpc_backend_options is None else rpc_backend_options
    if not isinstance(options, RpcBackendOptions):
        raise ArgumentError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if backend is None and not isinstance(options, TensorPipeRpcBackendOptions):
        raise ArgumentError(f"Could not infer backend for options {options}; name the backend that takes them")
    store, rank, size = _rendezvous(options.init_method, -1 if rank is None else rank, world_size)
    state.agent = backend_registry.init_backend(
        backend or backend_registry.BackendType.TENSORPIPE,
        store=PrefixStore(keys.remote_workers(), store),
        name=name,
        rank=rank,
        world_size=size,
        rpc_backend_options=options,
    )
    if state.is_process:
        leave_at_exit(_close)


def _close() -> None:
    """Close the agent if the process ends without `shutdown`, so that its threads do not outlive the interpreter."""
    here().close(_END_SECONDS)


def _rendezvous(url: str, rank: int, size: int | None) -> tuple[Store, int, int | None]:
    thread = thread_rank() if url == DEFAULT_INIT_METHOD else None
    if thread is not None:
        rank, size = thread.rank if rank < 0 else rank, thread.size if size is None else size
    for what, number in (("rank", rank), ("world_size", size)):
        if number is not None and not is_int(number):
            raise ArgumentError(f"{what} must be an integer, but got {number!r}")
    if size is not None and size < 1:
        raise ValueRangeError(f"world_size must be at least 1, but got {size}")
    if size is not None and rank >= size:
        raise ValueRangeError(f"rank must be from 0 to world_size - 1, but rank is {rank} and world_size {size}")
    if thread is not None:
        return thread.store, rank, size
    by_environment = url.startswith("env:")
    if size is None and by_environment and rank < 0 and "WORLD_SIZE" in os.environ:
        size = -1  # both are read from the environment
    if size is None:
        rendezvous_rank = (
            rank if rank >= 0 or by_environment else 1
        )  # any number but that of the host; the worker's own is assigned later
        store, world_size, _ = next(iter(rendezvous(url, rendezvous_rank, _ANY, timeout=_PATIENCE)))
        return store, world_size if rank < 0 and by_environment else rank, None
    # `join` also compares keys and world sizes, which gives better errors than a store that waits in vain.
    at_once = {"wait_for_workers": False} if url.startswith(("env:", "tcp:")) else {}  # `join` waits for them later
    store, rank, world_size = next(iter(rendezvous(url, rank, size, timeout=_PATIENCE, **at_once)))
    if not 0 <= rank < world_size:
        raise ValueRangeError(f"rank must be from 0 to world_size - 1, but rank is {rank} and world_size {world_size}")
    return store, rank, world_size


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker with this name, by default this one. `RuntimeError` if there is none."""
    agent = current_agent()
    return agent.me if worker_name is None else worker(agent, worker_name)


def rpc_sync(
    to: AnyWorker, func: AnyCallable, args: Arg = None, kwargs: Arg = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Result:
    """Call a function on another worker, and wait for its result.

    `to` is a worker's name, number or `WorkerInfo`. Arguments and results are copied; tensors are sent without the
    tape. An exception of the function is raised here, with the remote traceback in its text. `RuntimeError` after
    `timeout` seconds (-1: the default, 0: no limit), and if the worker is lost. A call is never repeated.
    """
    log_api_usage_once("torch.distributed.rpc_sync")
    return begin(to, func, args, kwargs, timeout, RPCExecMode.SYNC).wait()


def rpc_async(
    to: AnyWorker, func: AnyCallable, args: Arg = None, kwargs: Arg = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Future[Result]:
    """Call a function on another worker without waiting: returns a future of the result. See `rpc_sync`."""
    log_api_usage_once("torch.distributed.rpc_async")
    begun = begin(to, func, args, kwargs, timeout, RPCExecMode.ASYNC).push()
    if _thread_local.begun is not None:
        _thread_local.begun.append(begun)
    return begun


class _ThreadLocal(threading.local):
    begun: list[Future[Result]] | None = None  # the calls for which `_wait_all` waits


_thread_local = _ThreadLocal()


@contextmanager
def _wait_all() -> Generator[None]:
    """Wait, at the end of the block, for all calls that `rpc_async` has started in it, and raise the first error."""
    before, _thread_local.begun = _thread_local.begun, []
    try:
        yield
    finally:
        begun, _thread_local.begun = _thread_local.begun, before
        wait_all(begun)


def _await_end(agent: Agent, deadline: Deadline) -> None:
    """Return when this worker may leave. It keeps its references until then, since running functions may use them."""
    # Deletes are counted as calls, so those that wait would otherwise be missing in the first round.
    agent.deletes.send(agent.tell)
    if agent.size is None:
        finish_calls(agent, deadline)
        agent.references.wait_for_children(deadline.left())
        agent.workers.leave()
    else:
        graceful_shutdown(agent, deadline)


def _leave(agent: Agent, deadline: Deadline) -> None:
    state = here()
    # Another thread may have left, and joined again, meanwhile.
    if state.agent is agent:
        state.agent = None
        if state.is_process:
            forget(_close)
    before_leaving()
    agent.close(deadline.left())


def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Leave the job. With `graceful`, first wait until all workers have called this and all work is over.

    References to other workers' values are released. `RuntimeError` after `timeout` seconds (0: no limit); also at the
    end, if a worker has ended too early, although this one has then left. In a job without a world size, it waits only
    for the answers to this worker's own calls. If several threads call it, one does the work, and the others return
    when it is done.
    """
    agent, deadline = current_agent(), Deadline(seconds(timeout) or None)
    if not graceful:
        _leave(agent, deadline)
    elif agent.shutdown.acquire(blocking=False):
        try:
            _await_end(agent, deadline)
        finally:
            _leave(agent, deadline)
            agent.shutdown.release()
    # Somebody else is leaving; whoever returns from `shutdown` may rely on it that the worker has left.
    elif agent.shutdown.acquire(timeout=-1 if (left := deadline.left()) is None else left):
        agent.shutdown.release()
    else:
        raise RpcError(
            f"shutdown: {agent.me} waited {deadline.seconds:g} s for another of its threads, which is in shutdown() too"
        )


def get_rpc_timeout() -> float:
    """The default timeout of calls, in seconds."""
    return current_agent().seconds


def set_rpc_timeout(rpcTimeoutSeconds: float) -> None:
    """Set the default timeout of calls, in seconds."""
    current_agent().seconds = RpcBackendOptions(rpc_timeout=rpcTimeoutSeconds).rpc_timeout


def has_agent() -> bool:
    """Whether `init_rpc` was called, and `shutdown` not yet."""
    return here().agent is not None


def initialized(func: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises `RuntimeError` before `init_rpc` and after `shutdown`."""

    @wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        current_agent()
        return func(*args, **kwargs)

    return wrapper


def is_available() -> bool:
    """True: remote calls are always available."""
    return True


def _get_current_rpc_agent() -> Agent:
    """The agent of this process; `RuntimeError` if there is none."""
    agent = here().agent
    if agent is None:
        raise RpcError(NO_AGENT)
    return agent


def reference_info() -> dict[str, str]:
    """Statistics of this worker's references, as texts."""
    figures = _get_current_rpc_agent().references.figures()
    return {name: str(figure) for name, figure in figures.items()}


def all_debug_info() -> dict[str, str]:
    """Statistics of this worker, and of its contexts of distributed autograd, as texts."""
    figures = debug_info() | _get_current_rpc_agent().contexts.figures()
    return {name: str(figure) for name, figure in figures.items()}


def debug_info() -> dict[str, int]:
    """Statistics of this worker: threads, calls in both directions, values kept for others, and their forks."""
    agent = current_agent()
    return agent.figures() | agent.references.figures()


# PyTorch has them under these names
_all_gather, _barrier = all_gather, barrier
_set_rpc_timeout = set_rpc_timeout
_is_current_rpc_agent_set = has_agent
_require_initialized = initialized
_rref_context_get_debug_info = reference_info
_get_debug_info = all_debug_info
