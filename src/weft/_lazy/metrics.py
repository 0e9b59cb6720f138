"""Counts of what XLA's devices do: compilations, executions, and transfers between them and the host.

What is on the CPU, `device("cpu")`, is not counted, so its programs and reads pay nothing for this.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from weft._base.forks import renew_in_forks
from weft._base.types import AnyArray

_MOST_SAMPLES = 1024

TIME, BYTES, COUNT = "time", "bytes", "count"
"""What a metric's numbers are: nanoseconds, bytes or others."""


class Metric:
    """A quantity that was measured several times: how often, the sum, and the last samples as (seconds, value)."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.total = 0
        self.accumulated = 0.0
        self.samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)


_lock = threading.Lock()
renew_in_forks(globals(), "_lock")
# no cell: only texts and reports depend on it
counters: dict[str, int] = {}
# no cell: only texts and reports depend on it
metrics: dict[str, Metric] = {}


def count(name: str, by: int = 1) -> None:
    """Add to a counter, which begins at 0."""
    with _lock:
        counters[name] = counters.get(name, 0) + by


def sample(name: str, value: float, unit: str = TIME) -> None:
    """Add a sample to a metric."""
    with _lock:
        metric = metrics.get(name)
        if metric is None:
            metric = metrics[name] = Metric(unit)
        metric.total += 1
        metric.accumulated += value
        metric.samples.append((time.time(), value))


def took(name: str, start: int) -> None:
    """Add the nanoseconds since `start` (of `time.perf_counter_ns`) to a metric."""
    sample(name, time.perf_counter_ns() - start)


@contextmanager
def to_device(nbytes: int) -> Generator[None]:
    """Measure the block as a transfer of new elements to a device."""
    start = time.perf_counter_ns()
    yield
    took("TransferToDeviceTime", start)
    sample("OutboundData", nbytes, BYTES)
    count("CreateXlaTensor")


@contextmanager
def from_device(array: AnyArray) -> Generator[None]:
    """Measure the block as a transfer of a device's array to the host."""
    start = time.perf_counter_ns()
    yield
    took("TransferFromDeviceTime", start)
    sample("InboundData", array.nbytes, BYTES)


def clear(*, counts: bool = True, measured: bool = True) -> None:
    """Forget the counters, and the metrics."""
    with _lock:
        if counts:
            counters.clear()
        if measured:
            metrics.clear()
