"""Launches workers with everything that they need: rendezvous, agent, logs, signals, events."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from weft._base.types import AnyCallable, Arg, Result
from weft.distributed.elastic.agent.server import LocalElasticAgent, WorkerSpec
from weft.distributed.elastic.agent.server.health_check_server import HealthCheckServer
from weft.distributed.elastic.events import get_logging_handler
from weft.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    LogsSpecs,
    PContext,
    SignalException,
    start_processes,
)
from weft.distributed.elastic.multiprocessing._entry import RUNNER, is_run_here, program_name
from weft.distributed.elastic.multiprocessing._forked import ForkServer, preloaded_for
from weft.distributed.elastic.multiprocessing._numa import refuse_numa
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError
from weft.distributed.elastic.rendezvous import RendezvousParameters, get_rendezvous_handler
from weft.distributed.elastic.rendezvous.api import check_limits
from weft.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from weft.errors import ArgumentError, ValueRangeError

_log = logging.getLogger(__name__)

_LEGACY_TIMEOUT = 900
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


@dataclass
class LaunchConfig:
    """The configuration of a launch. The fields are the options of `weft run` (`--help`); times are in seconds."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Arg] = field(default_factory=dict[str, Arg])
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict[str, str])
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: None = None
    signals_to_handle: str = SIGNALS
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_nodes", "max_nodes", "nproc_per_node"):
            if not isinstance(count := getattr(self, name), int):
                raise ArgumentError(f"LaunchConfig: {name} must be an int, got {count!r}")
        if self.nproc_per_node < 1:
            raise ValueRangeError(f"LaunchConfig: nproc_per_node must be at least 1, got {self.nproc_per_node}")
        check_limits(self.min_nodes, self.max_nodes, "rendezvous nodes")
        get_logging_handler(self.event_log_handler)  # raises if there is no such handler
        refuse_numa(self.numa_options)
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", _LEGACY_TIMEOUT)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        if self.shutdown_timeout < 0:
            raise ValueRangeError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")


class elastic_launch:
    """Launches a function or command on this node: `elastic_launch(config, entrypoint)(*args)`.

    Returns the functions' return values by global rank; raises `ChildFailedError` if workers failed. A
    `health_check_server` that the caller has started is stopped with the workers, and takes the place of the agent's.
    """

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: AnyCallable | str,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: Arg) -> dict[int, Result]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)


def launch_agent(
    config: LaunchConfig,
    entrypoint: AnyCallable | str,
    args: list[Arg],
    health_check_server: HealthCheckServer | None = None,
) -> dict[int, Result]:
    """Run workers under an agent in this process until they end; returns and raises what `elastic_launch` does."""
    if not config.run_id:
        config.run_id = str(uuid.uuid4().int)
        _log.warning("config has no run_id, generated a random run_id: %s", config.run_id)
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
    with _starter(config, entrypoint, args) as starter:
        agent = _agent(config, entrypoint, args, starter, health_check_server)
        return _launched(agent, program_name(entrypoint, args))


def _launched(agent: LocalElasticAgent, program: str) -> dict[int, Result]:
    handler = agent.get_worker_group().spec.rdzv_handler
    ends_job = True
    try:
        result = agent.run()
        if result.is_failed():
            raise ChildFailedError(program, result.failures)
        return result.return_values
    except SignalException:
        ends_job = False  # other nodes may continue, and this one may join again
        raise
    finally:
        try:
            if ends_job:
                handler.shutdown()
            else:
                handler.leave()
        except Exception as error:  # it must not hide how the workers have ended
            _log.warning("the rendezvous of job %s cannot be shut down: %s", handler.get_run_id(), repr(error))


@contextmanager
def _starter(
    config: LaunchConfig, entrypoint: AnyCallable | str, args: list[Arg]
) -> Generator[Callable[..., PContext]]:
    """The function that starts processes: a fork server, if there are several workers or there may be restarts."""
    several = config.nproc_per_node > 1 or config.max_restarts > 0 or config.max_nodes > config.min_nodes
    program = args[len(RUNNER) :] if several and is_run_here(entrypoint, args) else []
    modules = preloaded_for(program)
    if not modules:
        yield start_processes
        return
    with ForkServer(modules, program) as server:
        yield server.start


def _agent(
    config: LaunchConfig,
    entrypoint: AnyCallable | str,
    args: list[Arg],
    starter: Callable[..., PContext],
    health_check_server: HealthCheckServer | None,
) -> LocalElasticAgent:
    parameters = RendezvousParameters(
        config.rdzv_backend,
        config.rdzv_endpoint,
        config.run_id,
        config.min_nodes,
        config.max_nodes,
        config.local_addr,
        **config.rdzv_configs,
    )
    master_addr, master_port = _master(parameters)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(args),
        rdzv_handler=get_rendezvous_handler(parameters),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=master_addr,
        master_port=master_port,
        local_addr=config.local_addr,
        event_log_handler=config.event_log_handler,
        duplicate_stdout_filters=config.duplicate_stdout_filters,
        duplicate_stderr_filters=config.duplicate_stderr_filters,
        virtual_local_rank=config.virtual_local_rank,
    )
    return LocalElasticAgent(
        spec,
        config.logs_specs,
        config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=30 if config.shutdown_timeout is None else config.shutdown_timeout,
        health_check_server=health_check_server,
        starter=starter,
    )


def _master(parameters: RendezvousParameters) -> tuple[str | None, int | None]:
    """The address and port of the workers' master; None unless the rendezvous is static."""
    if parameters.backend != "static" or not parameters.endpoint:
        return None, None
    host, port = parse_rendezvous_endpoint(parameters.endpoint, -1)
    return host, None if port < 0 else port
