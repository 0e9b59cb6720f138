"""The main loop of a loader's worker process."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._absent.types import ManagerWatchdog as ManagerWatchdog
from weft._absent.types import _IterableDatasetStopIteration as _IterableDatasetStopIteration
from weft._absent.types import _ResumeIteration as _ResumeIteration
from weft._base.device import set_default_device
from weft._base.exception_wrapper import ExceptionWrapper
from weft._base.site import line_of, stand_for
from weft._base.types import Arg, PyTree
from weft._lazy.threads import set_threads
from weft.random import manual_seed
from weft.utils.data._datapipes import IterDataPipe, share
from weft.utils.data._utils.fetch import Source
from weft.utils.data._utils.info import WorkerInfo, get_worker_info, set_worker_info
from weft.utils.data._utils.main import forked
from weft.utils.data._utils.transfer import ReceivedPayload, SharedSegment, WorkerPayload, write
from weft.utils.data.dataset import Subset

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Index

_NOT_FOUND = (
    "A worker process is a new interpreter that imports what it is sent: define datasets and functions at the top "
    "level of a module or script, or use num_workers=0."
)


class TaskOutcome(Enum):
    """The outcome of a task."""

    BATCH = "batch"
    FAILED = "failed"
    ENDED = "ended"  # this worker's iterable dataset has no further batch


def work_forked(inherited: Iterable[Connection], *args: Any) -> None:
    """`work` in a forked process, which has its parent's ends of links, too.

    It closes them: workers end when the last process that has the other end of their link closes it.
    """
    forked()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for link in inherited:
        link.close()
    work(*args)


def work(
    payload: WorkerPayload | ReceivedPayload,
    link: Connection,
    segments: list[SharedSegment],
    worker: int,
    workers: int,
    base_seed: int,
) -> None:
    """Execute tasks until the other end of the link is closed.

    A task is (its number, the slot to write to, the indices). The reply is (its number, a `TaskOutcome`, the sizes of
    the parts in the slot). A single number starts another pass with that base seed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process is interrupted too, and closes the link
    threading.Thread(target=_end_with_parent, name="weft-parent", daemon=True).start()
    writer = _BatchWriter(payload, worker, workers, base_seed)
    try:
        link.send(None)  # ready
        while True:
            task = link.recv()
            if isinstance(task, int):
                writer.begin(task)
            else:
                number, segment, index = task
                link.send((number, *writer.write(index, segments[segment])))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _end_with_parent() -> None:
    """End this process when its parent has ended, even in the middle of a batch."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


class _BatchWriter:
    """Makes the batches of a worker, and writes them to segments."""

    def __init__(self, payload: WorkerPayload | ReceivedPayload, worker: int, workers: int, base_seed: int) -> None:
        self._worker = worker
        self._workers = workers
        self._source: Source | None = None
        self._fetch: Callable[[Any], Any] | None = None
        self._broken: ExceptionWrapper | None = None
        set_default_device("cpu")
        set_threads(1)  # there is a worker for each CPU that should load
        try:
            source, init = _opened(payload)
            self._source = source
            stand_for(f"{_place_of(source)} (DataLoader worker {worker})", work.__code__)
            self.begin(base_seed)
            if init is not None:
                init(worker)
        except Exception as error:  # reported by the reply to every task
            self._broken = _wrapped(error, worker)

    def begin(self, base_seed: int) -> None:
        """Start a pass over the dataset."""
        if self._source is None:
            return
        seed = _seed_everything(base_seed, self._worker)
        set_worker_info(WorkerInfo(id=self._worker, num_workers=self._workers, seed=seed, dataset=self._source.dataset))
        if isinstance(self._source.dataset, IterDataPipe):
            share(self._source.dataset, base_seed, self._workers, self._worker)
        self._fetch = None

    def write(self, index: Index, segment: SharedSegment) -> tuple[TaskOutcome, list[int]]:
        """Write a batch, or the exception that it raised, to a segment; returns the outcome and the sizes."""
        answer, batch = self._answer(index)
        try:
            return answer, write(segment, batch)
        except Exception as error:  # a batch that cannot be pickled
            return TaskOutcome.FAILED, write(segment, _wrapped(error, self._worker))

    def _answer(self, index: Index) -> tuple[TaskOutcome, Arg]:
        if self._source is None or self._broken is not None:
            return TaskOutcome.FAILED, self._broken
        try:
            if self._fetch is None:
                self._fetch = self._source.samples()
            return TaskOutcome.BATCH, self._source.collated(self._fetch(index), index)
        except StopIteration as error:
            if self._source.iterable:
                return TaskOutcome.ENDED, None
            return TaskOutcome.FAILED, _wrapped(error, self._worker)
        except Exception as error:
            return TaskOutcome.FAILED, _wrapped(error, self._worker)


def _wrapped(error: BaseException, worker: int) -> ExceptionWrapper:
    return ExceptionWrapper((type(error), error, error.__traceback__), f"in DataLoader worker process {worker}")


def _place_of(source: Source) -> str:
    """The user's line of code that makes samples, or the dataset's type."""
    dataset, name = source.dataset, "__iter__" if source.iterable else "__getitem__"
    while (line := line_of(getattr(type(dataset), name, None))) is None and isinstance(dataset, Subset):
        dataset = dataset.dataset
    return line or type(dataset).__name__


def _opened(payload: WorkerPayload | ReceivedPayload) -> PyTree:
    try:
        return payload.open()
    except (AttributeError, ImportError) as error:
        error.add_note(_NOT_FOUND)
        raise


def _seed_everything(base_seed: int, worker: int) -> int:
    """Seed Python's, NumPy's and this package's generators, differently in each worker and pass."""
    seed = base_seed + worker
    random.seed(seed)
    np.random.seed(_generate_state(base_seed, worker))
    manual_seed(seed)
    return seed


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers of 32 bits to seed NumPy with, as PyTorch's workers do; libraries call it for workers of theirs."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4).tolist()


class _WorkerModule(ModuleType):
    """This module, whose `_worker_info` is the info of this process: libraries read it, and set it in threads."""

    @property
    def _worker_info(self) -> WorkerInfo | None:
        return get_worker_info()

    @_worker_info.setter
    def _worker_info(self, info: WorkerInfo | None) -> None:
        set_worker_info(info)


sys.modules[__name__].__class__ = _WorkerModule
