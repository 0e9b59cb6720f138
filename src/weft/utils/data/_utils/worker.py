"""The main loop of a loader's worker process."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from enum import Enum
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft._base.device import set_default_device
from weft._base.site import line_of, stand_for
from weft._base.types import Arg, PyTree
from weft._lazy.threads import set_threads
from weft.errors import WorkerError
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


class Failure:
    """An exception in a worker, to be raised in the process that waits for the batch."""

    def __init__(self, error: BaseException, worker: int) -> None:
        self._kind = _sendable(type(error))
        text = "".join(traceback.format_exception(error))
        self._text = f"Caught {type(error).__name__} in DataLoader worker process {worker}.\nOriginal {text}"

    def reraise(self) -> NoReturn:
        """Raise it with the same type if that can be made of a text, otherwise as a `RuntimeError`."""
        text = _Text(self._text)
        try:
            make: Any = self._kind
            error = make(message=text) if getattr(make, "message", None) else make(text)
        except Exception:  # anything that the constructor may raise
            raise WorkerError(text) from None
        try:
            raise error
        finally:
            del error  # the exception refers to this frame, and so to the iterator and its workers


class _Text(str):
    """A text that `KeyError` shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _sendable(kind: type[BaseException]) -> type[BaseException]:
    """The exception's type, or its first base class that can be pickled."""
    for base in kind.__mro__:
        try:
            pickle.dumps(base)
        except (pickle.PicklingError, AttributeError):
            continue
        return base
    raise AssertionError("object can be pickled")


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
        self._broken: Failure | None = None
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
            self._broken = Failure(error, worker)

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
            return TaskOutcome.FAILED, write(segment, Failure(error, self._worker))

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
            return TaskOutcome.FAILED, Failure(error, self._worker)
        except Exception as error:
            return TaskOutcome.FAILED, Failure(error, self._worker)


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
