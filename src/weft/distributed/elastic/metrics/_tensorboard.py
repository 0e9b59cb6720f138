"""Metrics in TensorBoard."""

from __future__ import annotations

from importlib import import_module

from weft._base.types import Arg
from weft.distributed.elastic.metrics._handlers import MetricData, MetricHandler


class TensorBoardMetricHandler(MetricHandler):
    """Writes metrics to the event files of a folder, as scalars named `group/name`.

    The step of a point is its number in its metric, counted from 0. `writer` is a folder or a `SummaryWriter`. It needs
    the package `tensorboard`, which is imported only here.
    """

    def __init__(self, log_dir: str | None = None, *, writer: Arg = None) -> None:
        if writer is None:
            writer = import_module("weft.utils.tensorboard").SummaryWriter(log_dir)
        self._writer = writer
        self._steps: dict[str, int] = {}

    def emit(self, metric_data: MetricData) -> None:
        """Write one point."""
        tag = f"{metric_data.group_name}/{metric_data.name}"
        step = self._steps.get(tag, 0)
        self._steps[tag] = step + 1
        self._writer.add_scalar(tag, metric_data.value, step, metric_data.timestamp)

    def close(self) -> None:
        """Write waiting points and close the files."""
        self._writer.close()
