"""The number, seed and dataset of a worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of a loader: its number, the number of workers, the seed of this pass, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _CurrentWorker:
    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The info of this worker process; None in the process that iterates over the loader.

    An iterable dataset uses `id` and `num_workers` to give each worker its own share of the samples.
    """
    return _CurrentWorker.info


def set_worker_info(info: WorkerInfo) -> None:
    """Set the info of this process."""
    _CurrentWorker.info = info
