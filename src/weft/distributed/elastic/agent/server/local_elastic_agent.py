"""An agent whose workers are processes of this machine."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from string import Template

from weft._base.files import atomic_write
from weft._base.flight_report import NOTHING, crash_report
from weft._base.temporary import remove_folder, temporary_folder
from weft._base.types import Result
from weft.distributed.elastic.agent.server._job_endpoint import JobEndpoint
from weft.distributed.elastic.agent.server._node_activity import NodeActivity
from weft.distributed.elastic.agent.server._worker_group import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from weft.distributed.elastic.agent.server.health_check_server import HealthCheckServer, create_healthcheck_server
from weft.distributed.elastic.agent.server.simple_elastic_agent import SimpleElasticAgent
from weft.distributed.elastic.events import Event, EventSource, record
from weft.distributed.elastic.events.api import EventMetadataValue
from weft.distributed.elastic.metrics import prof
from weft.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    LogsSpecs,
    PContext,
    RunProcsResult,
    start_processes,
)
from weft.distributed.elastic.timer import FileTimerRequest, FileTimerServer
from weft.distributed.elastic.utils import macros
from weft.errors import ValueRangeError

_log = logging.getLogger(__name__)

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"
TORCHELASTIC_HEALTH_CHECK_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"

_HANDED_ON = ("OMP_NUM_THREADS", "WEFT_JOB_KEY")
_HEALTH_SECONDS = 60
_WATCHDOG_SECONDS = 0.1


class LocalElasticAgent(SimpleElasticAgent):
    """An agent that starts and stops the workers of its node as a unit; a worker's id is its process id.

    Args:
        spec: the workers; functions and their arguments must be suitable for `multiprocessing`.
        logs_specs: where output goes; by default to the console.
        start_method: `spawn`, `fork` or `forkserver`, for functions.
        exit_barrier_timeout: seconds to wait for the workers of other nodes.
        log_line_prefix_template: text before each line of teed output, with `${role_name}`, `${rank}`, `${local_rank}`.
        shutdown_timeout: seconds between SIGTERM and SIGKILL.
        health_check_server: one that the caller has started; the agent stops it, and starts none of its own.
        log_dir: directory of the output; short for `logs_specs=DefaultLogsSpecs(log_dir)`.
        starter: the function that starts the processes, called like `start_processes`; for a fork server.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs | None = None,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: HealthCheckServer | None = None,
        *,
        log_dir: str | None = None,
        starter: Callable[..., PContext] = start_processes,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        if logs_specs is not None and log_dir is not None:
            raise ValueRangeError(f"give logs_specs or log_dir, not both; log_dir is {log_dir!r}")
        self._logs_specs = logs_specs or DefaultLogsSpecs(log_dir)
        self._start_method = start_method
        self._prefix = log_line_prefix_template
        self._starter = starter
        self._pcontext: PContext | None = None
        self._result: RunProcsResult | None = None
        self._watchdog: FileTimerServer | None = None
        self._timer_folder: str | None = None
        self._health = health_check_server
        self._activity = NodeActivity(self._worker_group)
        self._endpoint: JobEndpoint | None = None

    @prof
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Result]:
        spec = worker_group.spec
        envs = {worker.local_rank: self._environment(worker) for worker in worker_group.workers}
        self._start_watchdog(envs)
        self._activity.share(envs)
        # Kept over restarts, so that those who watch the job see them.
        if self._endpoint is None:
            self._endpoint = JobEndpoint(self._worker_group, self._activity, lambda: (self._seconds, self._restarts))
        self._start_health_check(self._endpoint)
        self._pcontext = self._starter(
            name=spec.role,
            entrypoint=spec.entrypoint,
            args={rank: tuple(macros.substitute(spec.args, str(rank))) for rank in envs},
            envs=envs,
            logs_specs=self._logs_specs,
            log_line_prefixes=self._prefixes(worker_group) if self._prefix else None,
            start_method=self._start_method,
            duplicate_stdout_filters=spec.duplicate_stdout_filters,
            duplicate_stderr_filters=spec.duplicate_stderr_filters,
        )
        return self._pcontext.pids()

    def _environment(self, worker: Worker) -> dict[str, str]:
        group, spec = self._worker_group, self._worker_group.spec
        return {
            **self._device(worker.local_rank),
            "RANK": str(worker.global_rank),
            "GROUP_RANK": str(group.group_rank),
            "ROLE_RANK": str(worker.role_rank),
            "ROLE_NAME": spec.role,
            "LOCAL_WORLD_SIZE": str(spec.local_world_size),
            "WORLD_SIZE": str(worker.world_size),
            "GROUP_WORLD_SIZE": str(group.group_world_size),
            "ROLE_WORLD_SIZE": str(worker.role_world_size),
            "MASTER_ADDR": str(group.master_addr),
            "MASTER_PORT": str(group.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(self._restarts),
            "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            # The round, not the number of restarts, which differs where nodes were restarted unequally often: ranks
            # that derive names of keys from it would not meet.
            "WEFT_RENDEZVOUS_ROUND": str(group.round),
            **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
        }

    def _device(self, local_rank: int) -> dict[str, str]:
        """The environment that selects a worker's device: its local rank, or 0 for all in virtual mode."""
        if not self._worker_group.spec.virtual_local_rank:
            return {"LOCAL_RANK": str(local_rank)}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = [str(local_rank)] * (local_rank + 1) if visible is None else visible.split(",")
        if local_rank >= len(devices):
            raise ValueRangeError(f"local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={visible}")
        return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": devices[local_rank].strip()}

    def _prefixes(self, group: WorkerGroup) -> dict[int, str]:
        template = Template(self._prefix or "")
        return {
            worker.local_rank: template.safe_substitute(
                role_name=group.spec.role, rank=worker.global_rank, local_rank=worker.local_rank
            )
            for worker in group.workers
        }

    def _start_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        """Start the server of the workers' timers, if the environment asks for it."""
        path = os.environ.get(TORCHELASTIC_TIMER_FILE)
        if os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) == "1":
            if path is None:
                self._timer_folder = temporary_folder("watchdog_timer_")
                path = os.path.join(self._timer_folder, "pipe")
            run_id = self._worker_group.spec.rdzv_handler.get_run_id()
            self._watchdog = FileTimerServer(
                path, run_id, max_interval=_WATCHDOG_SECONDS, daemon=True, log_event=self._record_timer
            )
            self._watchdog.start()
        for env in envs.values():
            if path is not None:
                env[TORCHELASTIC_TIMER_FILE] = path

    def _record_timer(self, name: str, request: FileTimerRequest | None) -> None:
        metadata: dict[str, EventMetadataValue] = {
            "run_id": self._worker_group.spec.rdzv_handler.get_run_id(),
            "watchdog_event": name,
        }
        if request is not None:
            metadata |= {"worker_pid": request.worker_pid, "scope_id": request.scope_id, "signal": request.signal}
        record(Event(name, EventSource.AGENT, metadata=metadata), self._worker_group.spec.event_log_handler)

    def _start_health_check(self, endpoint: JobEndpoint) -> None:
        port = os.environ.get(TORCHELASTIC_HEALTH_CHECK_PORT)
        if port is None or self._health is not None:
            return
        if not port.isdecimal():
            raise ValueRangeError(f"{TORCHELASTIC_HEALTH_CHECK_PORT} must be a port number, got {port!r}")
        self._health = create_healthcheck_server(self._alive_at, int(port), _HEALTH_SECONDS, page=endpoint.page)
        self._health.start()

    def _alive_at(self) -> int:
        """The time of the agent's last progress, in seconds since the epoch."""
        if self._watchdog is None or self._in_exit_barrier:
            return int(time.time())
        return self._watchdog.get_last_progress_time()

    @prof
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._end_workers(signal.SIGTERM, self._shutdown_timeout)

    def _end_workers(self, death_sig: signal.Signals, timeout: int) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        if self._timer_folder is not None:
            remove_folder(self._timer_folder)
            self._timer_folder = None
        if self._pcontext is not None:
            self._pcontext.close(death_sig, timeout)
            self._pcontext = self._result = None
        self._activity.close()

    def _write_crash_report(self, context: PContext) -> None:
        """Tell what the workers were doing, and keep it beside their logs."""
        if not context.folder:
            return
        ranks = {worker.local_rank: worker.global_rank for worker in self._worker_group.workers}
        try:
            text = crash_report(
                context.folder,
                at=context.closed_at,
                stopped=[ranks[at] for at in context.stopped],
                exit_codes={ranks[at]: code for at, code in context.ended.items()},
            )
        # A report is an extra: what fails here must not hide how the workers have ended.
        except (OSError, ValueRangeError) as error:
            _log.info("there is no crash report: %s", error)
            return
        folder = os.environ.get("WEFT_CRASH_REPORT") or ("" if context.is_temporary else context.folder)
        summary, _, _ = text.partition("\n\n")
        if not summary.endswith(NOTHING):
            _log.error("%s", summary)
        if folder:
            self._keep_crash_report(text, folder)

    def _keep_crash_report(self, text: str, folder: str) -> None:
        path = Path(folder, f"crash_report_{self._worker_group.group_rank or 0}_{self._restarts}.txt")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Private, as stacks and messages may show data, and the folder may be open to others.
            with atomic_write(path, private=True) as file:
                file.write(text.encode())
        except OSError as error:
            _log.warning("the crash report cannot be written: %s", error)
        else:
            _log.warning("crash report: %s", path)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        context, result = self._pcontext, self._result
        self._end_workers(death_sig, min(timeout, self._shutdown_timeout))
        # Ended by a signal, or after another node's failure: a hang is explained by where these workers were.
        if context is not None and result is None:  # they were running, or hung
            self._write_crash_report(context)
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None
        if self._health is not None:
            self._health.stop()
            self._health = None

    def _await_change(self, timeout: float) -> None:
        """Wait for the processes themselves, so that an end is noticed at once."""
        assert self._pcontext is not None, "workers are watched before they are started"
        self._result = self._pcontext.wait(timeout)

    @prof
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        assert self._pcontext is not None, "workers are watched before they are started"
        result = self._result = self._result or self._pcontext.wait(0)
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        if result.is_failed():
            self._write_crash_report(self._pcontext)
            failures = {ranks[at]: failure for at, failure in result.failures.items()}
            return RunResult(WorkerState.FAILED, failures=failures)
        values = {ranks[at]: value for at, value in result.return_values.items()}
        return RunResult(WorkerState.SUCCEEDED, return_values=values)
