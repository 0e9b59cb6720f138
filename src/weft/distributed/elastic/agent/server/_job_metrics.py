"""What the workers of a node do, in Prometheus's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Protocol

from weft._base.activity import WAITS
from weft.distributed.elastic._http import Response
from weft.distributed.elastic._job_report import NodeReport, WorkerReport

_COUNTERS = {
    "steps": "Optimizer steps.",
    "batches": "Batches of data loaders.",
    "tokens": "Tokens, as the program reports them.",
    "samples": "Samples, as the program reports them.",
    "compilations": "Programs that XLA has compiled.",
    "compile_seconds": "Time that compiling took.",
    "calls_served": "Remote calls that this rank has served.",
}
_GAUGES = {
    "step_seconds": "Time between the last two optimizer steps.",
    "device_bytes": "Memory in use on this rank's accelerators.",
    "device_limit": "Memory that this rank's accelerators have.",
}


def metrics_page(job: str, node: NodeReport) -> Response:
    """The page for Prometheus; tells how to install `prometheus-client` if it is absent."""
    try:
        client, core = import_module("prometheus_client"), import_module("prometheus_client.core")
    except ImportError:
        return Response("metrics need prometheus-client: pip install 'weft[prometheus]'\n", "501 Not Implemented")
    registry = client.CollectorRegistry()
    registry.register(_Collector(core, job, node))
    return Response(client.generate_latest(registry).decode(), kind=client.CONTENT_TYPE_LATEST)


class Family(Protocol):
    """A family of metrics of `prometheus-client`."""

    def add_metric(self, labels: Sequence[str], value: float) -> None: ...


class _Collector:
    """Makes the families of metrics of one report; `core` is the module with their classes."""

    def __init__(self, core: ModuleType, job: str, node: NodeReport) -> None:
        self._core, self._job, self._workers = core, job, node.workers

    def collect(self) -> Iterator[Family]:
        counter, gauge = self._core.CounterMetricFamily, self._core.GaugeMetricFamily
        yield self._family(
            gauge,
            "running",
            "1 while the process of the rank runs; 0 if it is stopped or has ended.",
            _is_running,
        )
        yield self._family(gauge, "resident_bytes", "Memory of the process.", _resident_bytes)
        yield self._family(gauge, "seconds_since_step", "Time since the last optimizer step.", _since_step)
        text = "Time since the last step, batch, report or compilation; before the first, since the worker's start."
        yield self._family(gauge, "seconds_since_progress", text, _since_progress)
        for kind, families in ((counter, _COUNTERS), (gauge, _GAUGES)):
            for name, text in families.items():
                yield self._family(kind, name, text, partial(_number, name))
        yield self._waits(counter("weft_wait_seconds", "Time spent waiting.", labels=("job", "rank", "for")))
        yield self._values(gauge("weft_reported", "What the program reports.", labels=("job", "rank", "name")))

    def _family(
        self, kind: Callable[..., Family], name: str, text: str, value: Callable[[WorkerReport], float | None]
    ) -> Family:
        family = kind(f"weft_{name}", text, labels=("job", "rank"))
        for worker in self._workers:
            if (number := value(worker)) is not None:
                family.add_metric((self._job, str(worker.rank)), number)
        return family

    def _waits(self, family: Family) -> Family:
        for worker in self._workers:
            for kind in WAITS if worker.numbers else ():
                family.add_metric((self._job, str(worker.rank), kind), worker.numbers[f"{kind}_seconds"])
        return family

    def _values(self, family: Family) -> Family:
        for worker in self._workers:
            for name, value in worker.reported.items():
                family.add_metric((self._job, str(worker.rank), name), value)
        return family


def _is_running(worker: WorkerReport) -> float:
    return float(worker.process == "running")


def _resident_bytes(worker: WorkerReport) -> float:
    return worker.resident_bytes


def _number(name: str, worker: WorkerReport) -> float | None:
    return worker.numbers.get(name)


def _since_step(worker: WorkerReport) -> float | None:
    return worker.time - worker.numbers["step_ended"] if worker.numbers.get("steps") else None


def _since_progress(worker: WorkerReport) -> float | None:
    numbers = worker.numbers
    return worker.time - (numbers["progress"] or numbers["attached"]) if numbers else None
