"""Reports of what XLA's devices have done: compilations, executions and transfers, in PyTorch/XLA's words.

Metrics        CompileTime, ExecuteTime, TransferToDeviceTime, TransferFromDeviceTime (nanoseconds), OutboundData and
               InboundData (bytes to and from the device)
Counters       CreateCompileHandles (different graphs), UncachedCompile and CachedCompile (executions of programs that
               had to be compiled first, or were compiled already), Interpreted (executions operator by operator,
               before compiling the graph pays), CreateXlaTensor (tensors made of elements on the host), MarkStep

What is on `device("cpu")` is not counted. Every operator runs on the device, so there are no fallbacks.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from weft._lazy import metrics
from weft._lazy.metrics import BYTES, TIME, Metric

_PERCENTILES = (1, 5, 10, 20, 50, 80, 90, 95, 99)
_SHORT_COUNTERS = ("CachedCompile", "UncachedCompile", "MarkStep")
_SHORT_METRICS = ("CompileTime", "ExecuteTime", "TransferToDeviceTime", "TransferFromDeviceTime")
_FALLBACK = "aten::"


def counter_names() -> list[str]:
    """The counters that have counted something."""
    return sorted(metrics.counters)


def counter_value(counter_name: str) -> int | None:
    """The count of a counter, or None if it has not counted anything."""
    return metrics.counters.get(counter_name)


def metric_names() -> list[str]:
    """The metrics that have samples."""
    return sorted(metrics.metrics)


def metric_data(metric_name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """The number of a metric's samples, their sum, and the last 1,024 as (seconds since 1970, value); None without any.

    Times are in nanoseconds.
    """
    metric = metrics.metrics.get(metric_name)
    return None if metric is None else (metric.total, metric.accumulated, list(metric.samples))


def executed_fallback_ops() -> list[str]:
    """The operators that were computed on the CPU because the device cannot: none."""
    return [name for name in counter_names() if name.startswith(_FALLBACK)]


def clear_counters() -> None:
    """Forget all counters."""
    metrics.clear(measured=False)


def clear_metrics() -> None:
    """Forget the samples of all metrics."""
    metrics.clear(counts=False)


def clear_all() -> None:
    """Forget all counters and metrics."""
    metrics.clear()


def metrics_report() -> str:
    """All metrics, with rates and percentiles of the last samples, and all counters."""
    return _report(metric_names(), counter_names())


def short_metrics_report(
    counter_names: Collection[str] | None = None, metric_names: Collection[str] | None = None
) -> str:
    """The metrics and counters with these names; by default those of compilations, executions, transfers and steps."""
    return _report(metric_names or _SHORT_METRICS, counter_names or _SHORT_COUNTERS)


def save_metrics(metrics_file: str | None = None) -> None:
    """Append the report of a step to a file, by default the one that `XLA_METRICS_FILE` names, if any."""
    name = os.environ.get("XLA_METRICS_FILE") if metrics_file is None else metrics_file
    if not name:
        return
    step = (counter_value("MarkStep") or 0) - 1
    with Path(name).open("a", encoding="utf-8") as file:
        file.write(f"[MetricsData; step={step}]\n{metrics_report()}\n")


def _report(of_metrics: Collection[str], of_counters: Collection[str]) -> str:
    lines: list[str] = []
    for name in of_metrics:
        metric = metrics.metrics.get(name)
        if metric is not None:
            lines += [f"Metric: {name}", *_described(metric)]
    for name in of_counters:
        value = counter_value(name)
        if value is not None:
            lines += [f"Counter: {name}", f"  Value: {value}"]
    return "".join(f"{line}\n" for line in lines)


def _described(metric: Metric) -> list[str]:
    samples = list(metric.samples)
    values = sorted(value for _, value in samples)
    seconds = samples[-1][0] - samples[0][0]
    lines = [f"  TotalSamples: {metric.total}", f"  Accumulator: {_value_text(metric.accumulated, metric.unit)}"]
    if seconds > 0:
        lines.append(f"  ValueRate: {_value_text(sum(values) / seconds, metric.unit)} / second")
        lines.append(f"  Rate: {len(values) / seconds:.6g} / second")
    shares = [
        f"{p}%={_value_text(values[min(len(values) - 1, len(values) * p // 100)], metric.unit)}" for p in _PERCENTILES
    ]
    return [*lines, f"  Percentiles: {'; '.join(shares)}"]


def _value_text(value: float, unit: str) -> str:
    if unit == TIME:
        return _duration(value)
    if unit == BYTES:
        return _size(value)
    return f"{value:.2f}"


def _duration(nanoseconds: float) -> str:
    """Nanoseconds as "01m02s003ms004.005us", from the first part that is not zero."""
    rest, parts = nanoseconds / 1000, ""
    for size, name, digits in ((60e6, "m", 2), (1e6, "s", 2), (1e3, "ms", 3)):
        whole = int(rest // size)
        rest -= whole * size
        if whole or parts:
            parts += f"{whole:0{digits}}{name}"
    return f"{parts}{rest:07.3f}us"


def _size(count: float) -> str:
    for name in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.2f}{name}"
        count /= 1024
    return f"{count:.2f}TB"
