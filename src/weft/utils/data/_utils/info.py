"""What a worker process knows about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker of a loader: its number, how many there are, the seed of this pass, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Here:
    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What this worker process is; None in the process that iterates over the loader.

    An iterable dataset reads `id` and `num_workers` here to give each worker its own share of the samples.
    """
    return _Here.info


def set_worker_info(info: WorkerInfo) -> None:
    """Say what this process is."""
    _Here.info = info
