"""Handlers of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class MetricData(NamedTuple):
    """One point of a time series; `timestamp` is in seconds since the epoch."""

    timestamp: float
    group_name: str
    name: str
    value: float


class MetricHandler(ABC):
    """Gets metrics, after it was installed by `configure`."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Handle one point."""


class ConsoleMetricHandler(MetricHandler):
    """Prints metrics as `[timestamp][group]: name=value`."""

    def emit(self, metric_data: MetricData) -> None:
        """Print one point."""
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Discards metrics."""

    def emit(self, metric_data: MetricData) -> None:
        """Do nothing."""


ConsoleMetricsHandler = ConsoleMetricHandler  # the name in some of PyTorch's examples
NullMetricsHandler = NullMetricHandler
