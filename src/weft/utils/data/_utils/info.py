"""The number, seed and dataset of a worker process."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.errors import SettingError


class WorkerInfo:
    """A worker of a loader: its number, the number of workers, the seed of this pass, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise SettingError("Cannot assign attributes to WorkerInfo objects")

    def __repr__(self) -> str:
        return f"WorkerInfo({', '.join([f'{name}={value}' for name, value in vars(self).items()])})"


class _CurrentWorker:
    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The info of this worker process; None in the process that iterates over the loader.

    An iterable dataset uses `id` and `num_workers` to give each worker its own share of the samples.
    """
    return _CurrentWorker.info


def set_worker_info(info: WorkerInfo | None) -> None:
    """Set the info of this process."""
    _CurrentWorker.info = info
