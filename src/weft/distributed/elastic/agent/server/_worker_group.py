"""The workers of an agent: their specification, state and results."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum

from weft._base.types import AnyCallable, Args, Result
from weft._comm.stores.store import Store
from weft.distributed.elastic.multiprocessing._numa import refuse_numa
from weft.distributed.elastic.multiprocessing.errors import ProcessFailure
from weft.distributed.elastic.rendezvous.api import RendezvousHandler
from weft.errors import PreconditionError

DEFAULT_ROLE = "default"


@dataclass
class WorkerSpec:
    """The specification of the workers of one role. Every node has the same number of them.

    Args:
        role: name of the role.
        local_world_size: number of workers of this node.
        rdzv_handler: the rendezvous of the nodes.
        fn: former name of `entrypoint`.
        entrypoint: function, or command.
        args: arguments of the entrypoint; `${local_rank}` in a string is replaced.
        max_restarts: how often failed workers are restarted.
        monitor_interval: seconds between checks of the membership; the end of a worker is noticed at once.
        master_port, master_addr: the workers' store, if it is not the one that the rendezvous gives.
        local_addr: address of this node.
        event_log_handler: name of the handler of events.
        numa_options: PyTorch's options to bind workers to NUMA nodes; must be None.
        duplicate_stdout_filters, duplicate_stderr_filters: lines with one of these words are also written to a further
            file.
        virtual_local_rank: every worker has LOCAL_RANK 0 and sees only one device.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: AnyCallable | None = None
    entrypoint: AnyCallable | str | None = None
    args: Args = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: None = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.local_world_size <= 0:
            raise PreconditionError(f"local_world_size must be greater than 0, got {self.local_world_size}")
        if self.monitor_interval <= 0:
            raise PreconditionError(f"monitor_interval must be greater than 0 s, got {self.monitor_interval}")
        refuse_numa(self.numa_options)
        if self.fn is not None:
            warnings.warn(
                "WorkerSpec.fn will be deprecated, please use WorkerSpec.entrypoint instead",
                DeprecationWarning,
                stacklevel=3,
            )
            self.entrypoint = self.fn
        if not self.entrypoint:
            raise PreconditionError("WorkerSpec needs an entrypoint: a function, or a command")

    def get_entrypoint_name(self) -> str:
        """The function's qualified name, or the command's base name."""
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        return getattr(self.entrypoint, "__qualname__", repr(self.entrypoint))


@dataclass
class Worker:
    """One worker. `id` is the agent's identifier for it, for local workers a process id. A rendezvous changes ranks."""

    local_rank: int
    global_rank: int = -1
    role_rank: int = -1
    world_size: int = -1
    role_world_size: int = -1
    id: Result = field(default=None, init=False)

    def __str__(self) -> str:
        return (
            f"local_rank={self.local_rank},global_rank={self.global_rank},role_rank={self.role_rank},"
            f"world_size={self.world_size},role_world_size={self.role_world_size}"
        )

    __repr__ = __str__


class WorkerState(str, Enum):  # noqa: UP042  its text is `WorkerState.INIT`, as in PyTorch
    """State of a group of workers, which changes as a unit: one failure fails the group.

    UNKNOWN: lost, cannot be recovered. INIT: not started. HEALTHY, UNHEALTHY: running. STOPPED: interrupted by the
    agent, to be restarted. SUCCEEDED: all workers ended with exit code 0. FAILED: a worker did not.
    """

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether the processes exist, healthy or not."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


class WorkerGroup:
    """The workers of one spec that an agent manages, with the results of the last rendezvous."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Store | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.round = 0
        self.state = WorkerState.INIT


@dataclass
class RunResult:
    """The result of a run, by global rank: the functions' return values if all local workers succeeded, else failures.

    Workers that the agent ended on purpose are in neither.
    """

    state: WorkerState
    return_values: dict[int, Result] = field(default_factory=dict[int, Result])
    failures: dict[int, ProcessFailure] = field(default_factory=dict[int, ProcessFailure])

    def is_failed(self) -> bool:
        """Whether a worker failed."""
        return self.state == WorkerState.FAILED


class ElasticAgent(ABC):
    """A process that manages the workers of a node. The agents of all nodes find each other by a rendezvous."""

    @abstractmethod
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Start the workers and monitor them until they end; failed ones are restarted up to `max_restarts` times.

        Failures of workers are in the result; it raises only other errors.
        """

    @abstractmethod
    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """The workers of a role; the group changes while the agent runs."""
