"""Events and metrics of an agent and its workers."""

from __future__ import annotations

import json
import socket

from weft._base.types import Json
from weft.distributed.elastic.agent.server._worker_group import RunResult, Worker, WorkerGroup, WorkerState
from weft.distributed.elastic.events import Event, EventSource, record
from weft.distributed.elastic.events.api import EventMetadataValue
from weft.distributed.elastic.metrics import put_metric


class Reporter:
    """Events and metrics of one agent."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self._spec = group.spec

    def metric(self, name: str, value: int) -> None:
        """Publish `workers.<role>.<name>`."""
        put_metric(f"workers.{self._spec.role}.{name}", value)

    def state(self, state: WorkerState, remaining_restarts: int) -> None:
        """Count a check of the workers in the metrics."""
        self.metric("remaining_restarts", remaining_restarts)
        self.metric(state.name.lower(), 1)

    def result(self, result: RunResult, restarts: int) -> None:
        """Publish metrics of the end of a run."""
        failed, most = result.is_failed(), self._spec.max_restarts
        self.metric("flakiness", int(100.0 if failed else 100.0 - 100.0 * (most - restarts + 1) / (most + 1)))
        self.metric("run_total", 1)
        for name, ended_so in (("run_success", not failed), ("run_failed", failed)):
            self.metric(f"{name}_with_retries", int(ended_so and restarts > 0))
            self.metric(f"{name}_no_retries", int(ended_so and restarts == 0))

    def workers(self, result: RunResult, restarts: int, seconds: float) -> None:
        """Record an event for each worker."""
        for worker in self._group.workers:
            failure = result.failures.get(worker.global_rank)
            raw_error = json.dumps(failure.error_file_data) if failure else None
            state = _state_of(worker, result)
            self.record(self.event(state, restarts, seconds, worker=worker, raw_error=raw_error))

    def event(
        self,
        state: str,
        restarts: int,
        seconds: float,
        *,
        worker: Worker | None = None,
        raw_error: str | None = None,
        duration_ms: float | None = None,
    ) -> Event:
        """The event `torchelastic.worker.status.<state>` of a worker, or of the agent itself.

        `seconds` is the time since the agent was started, `duration_ms` how long the step took that the event is about.
        """
        name = f"torchelastic.worker.status.{state}"
        source = EventSource.AGENT if worker is None else EventSource.WORKER
        metadata = self._metadata(state, worker) | {
            "total_run_time": int(seconds),
            "raw_error": raw_error,
            "agent_restarts": restarts,
            "duration_ms": duration_ms,
        }
        return Event(name=name, source=source, metadata=metadata)

    def record(self, event: Event) -> None:
        """Pass an event to the handler named in the workers' spec."""
        record(event, self._spec.event_log_handler)

    def _metadata(self, state: str, worker: Worker | None) -> dict[str, EventMetadataValue]:
        details: dict[str, Json] = {
            "group_world_size": self._group.group_world_size,
            "entry_point": self._spec.get_entrypoint_name(),
        }
        if worker is not None:
            details |= {
                "local_rank": [worker.local_rank],
                "role_rank": [worker.role_rank],
                "role_world_size": [worker.role_world_size],
            }
        return {
            "run_id": self._spec.rdzv_handler.get_run_id(),
            "global_rank": None if worker is None else worker.global_rank,
            "group_rank": self._group.group_rank,
            "worker_id": None if worker is None else str(worker.id),
            "role": self._spec.role,
            "hostname": socket.gethostname(),
            "state": state,
            "rdzv_backend": self._spec.rdzv_handler.get_backend(),
            "metadata": json.dumps(details),
        }


def _state_of(worker: Worker, result: RunResult) -> str:
    if result.is_failed() and worker.global_rank not in result.failures:
        return "TERMINATED"
    return result.state.value
