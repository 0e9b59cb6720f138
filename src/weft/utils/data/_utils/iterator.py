"""The iterators of a loader: in this process, or with workers."""

from __future__ import annotations

import multiprocessing
import sys
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from weft._base.activity import DATA, process, waiting
from weft._base.site import ends_at_user
from weft._base.timeline import Phase, spanned
from weft._lazy.flushing import flush_pending
from weft.errors import WorkerError
from weft.utils.data._utils.adopted import adopted
from weft.utils.data._utils.pool import WorkerPool
from weft.utils.data._utils.position import begin, samples_in_batch
from weft.utils.data._utils.worker import TaskOutcome

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyLoader, Batch


class LoaderIterator(Iterator[Any]):
    """The base of iterators: counts the batches of a pass, which a subclass makes.

    It has no reference to the loader: a persistent loader refers to its iterator, and the workers end with either.

    pytorch_name  that of PyTorch's class, which tools look for in profiles

    `_reset`, `_index_sampler`, `_sampler_iter` and `_num_yielded` have PyTorch's names: libraries that continue a pass
    where it was interrupted replace and read them.
    """

    pytorch_name: str

    def __init__(self, loader: AnyLoader) -> None:
        self._begin(loader)

    def _begin(self, loader: AnyLoader) -> None:
        self._dataset = loader.dataset
        self._worker_count: int = loader.num_workers
        self._index_sampler = loader._index_sampler
        self._position = loader._next_position()
        self._batch_counts = samples_in_batch(loader)
        self._sampler_iter, self._base_seed = begin(loader, self._position)
        self._reported_length: int | None = (
            loader._reported_length
        )  # the length of an iterable dataset, if somebody has asked for it
        self._num_yielded = 0

    def _reset(self, loader: AnyLoader, first_iter: bool = False) -> None:
        """Begin another pass of the same iterator."""
        if not first_iter:
            self._begin(loader)

    @ends_at_user
    @spanned(Phase.DATA, lambda iterator: f"enumerate(DataLoader)#{iterator.pytorch_name}.__next__")
    def __next__(self) -> Batch:
        flush_pending()
        try:
            with waiting(DATA, "DataLoader"):
                batch = self._next_batch()
        except StopIteration:
            self._position.position, self._position.generators = 0, None  # the start of the next pass
            raise
        self._position.position += self._batch_counts
        self._num_yielded += 1
        if process.activity is not None:
            process.activity.batch()
        if self._reported_length is not None and self._num_yielded > self._reported_length:
            self._warn_of_length()
        return batch

    def _next_batch(self) -> Batch:
        raise NotImplementedError

    def _warn_of_length(self) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {self._reported_length}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._worker_count:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker: see weft.utils.data.get_worker_info."
            )
        warnings.warn(text, stacklevel=4)

    def __len__(self) -> int:
        return len(self._index_sampler)


class LocalIterator(LoaderIterator):
    """A pass that makes its batches in this process."""

    pytorch_name = "_SingleProcessDataLoaderIter"

    def __init__(self, loader: AnyLoader) -> None:
        loader = adopted(loader)
        super().__init__(loader)
        source = loader._source()
        self._collate = source.collated
        self._fetch = source.samples()

    def _next_batch(self) -> Batch:
        indices = next(self._sampler_iter)
        samples = self._fetch(indices)
        flush_pending()
        return self._collate(samples, indices)


@dataclass(slots=True)
class _Task:
    """A worker's task, and its result once it has arrived."""

    worker: int
    slot: int
    answer: TaskOutcome | None = None
    sizes: Sequence[int] = ()


def _default_context() -> BaseContext:
    """That which the program has set for all processes; else, as in PyTorch, `fork` on Linux, and `spawn` elsewhere."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    return multiprocessing.get_context(chosen or ("fork" if sys.platform == "linux" else "spawn"))


_LOANS = 2
"""The number of batches of each worker that may be used in shared memory without a copy."""


class WorkerIterator(LoaderIterator):
    """A pass with workers, each of which has up to `prefetch_factor` tasks.

    Tasks go to the workers in turn, and batches come in the order of the tasks. Without `in_order`, a task goes to the
    worker with the fewest tasks, and batches come as they are ready. Each task names a slot of the worker's memory,
    which is free again when nobody uses the batch any more. While many batches are in use, further ones are copied.
    """

    pytorch_name = "_MultiProcessingDataLoaderIter"

    def __init__(self, loader: AnyLoader) -> None:
        loader = adopted(loader)
        self._numbers = 0
        self._tasks: dict[int, _Task] = {}  # by number, oldest first
        self._most_tasks = max(1, loader.prefetch_factor)
        slots = self._most_tasks + _LOANS
        self._free = [list(range(slots)) for _ in range(loader.num_workers)]
        super().__init__(loader)
        context = loader.multiprocessing_context or _default_context()
        content = (loader._source(), loader.worker_init_fn)
        self._pool = WorkerPool(content, loader.num_workers, slots, self._base_seed, context)
        self._close = weakref.finalize(self, self._pool.close)
        self._dispatch()

    def _begin(self, loader: AnyLoader) -> None:
        super()._begin(loader)
        self._timeout: float = loader.timeout
        self._in_order: bool = loader.in_order
        self._persistent: bool = loader.persistent_workers
        self._round_robin = 0
        self._active = [True] * self._worker_count

    @property
    def closed(self) -> bool:
        """Whether the workers have been ended."""
        return self._pool.closed

    @property
    def _workers(self) -> Sequence[BaseProcess]:
        """The processes; libraries ask for them by this name."""
        return self._pool.processes

    def _shutdown_workers(self) -> None:
        """End the workers; libraries call it by this name."""
        self._close()

    def restart(self, loader: AnyLoader) -> None:
        """Begin another pass with the same workers; the rest of the last pass is dropped."""
        for task in self._tasks.values():
            while task.answer is None:
                self._collect(None)
            self._free[task.worker].append(task.slot)
        self._tasks.clear()
        self._reset(loader)
        for worker in range(loader.num_workers):
            self._pool.send(worker, self._base_seed)
        self._dispatch()

    def _next_batch(self) -> Batch:
        if self.closed:
            raise StopIteration
        try:
            return self._awaited()
        except KeyboardInterrupt:  # a message may be read in part
            self._pool.close(grace=0)
            raise

    def _awaited(self) -> Batch:
        self._collect(0)  # so that a dead worker is noticed now, not when its batch is due
        deadline = None
        while self._tasks:
            number = self._ready()
            if number is None:
                deadline = deadline or self._deadline()
                self._wait(deadline)
                continue
            task = self._tasks.pop(number)
            if task.answer is not TaskOutcome.ENDED:
                return self._read(task)
            self._active[task.worker] = False
            self._free[task.worker].append(task.slot)
            self._dispatch()
        if not self._persistent:
            self._pool.close()
        raise StopIteration

    def _ready(self) -> int | None:
        """The number of the next task whose result has arrived; None if there is none."""
        due = self._tasks if not self._in_order else [next(iter(self._tasks))]
        return next((number for number in due if self._tasks[number].answer is not None), None)

    def _read(self, task: _Task) -> Batch:
        free = self._free[task.worker]
        lent = self._most_tasks + _LOANS - len(free) - self._tasks_of(task.worker)  # including this one
        release = partial(free.append, task.slot)
        try:
            batch = self._pool.read(task.worker, task.slot, task.sizes, copy=lent > _LOANS, release=release)
        finally:
            self._dispatch()
        if task.answer is TaskOutcome.FAILED:
            batch.reraise()
        return batch

    def _deadline(self) -> float | None:
        """The time at which waiting for a batch ends; None without a timeout, and while workers start."""
        return time.monotonic() + self._timeout if self._timeout and self._pool.started else None

    def _wait(self, deadline: float | None) -> None:
        if self._collect(None if deadline is None else max(0.0, deadline - time.monotonic())):
            return
        self._pool.close(grace=0)
        raise WorkerError(f"DataLoader timed out after {self._timeout} seconds")

    def _collect(self, timeout: float | None) -> bool:
        """Store the results that workers have sent; False if none arrived within `timeout` seconds."""
        received = self._pool.receive(timeout)
        for number, answer, sizes in received or ():
            self._tasks[number].answer, self._tasks[number].sizes = answer, sizes
        return received is not None

    def _dispatch(self) -> None:
        """Send tasks to workers until all have enough."""
        while (worker := self._next_worker()) is not None:
            try:
                index = next(self._sampler_iter)
            except StopIteration:
                return
            slot = self._free[worker].pop()
            self._pool.send(worker, (self._numbers, slot, index))
            self._tasks[self._numbers] = _Task(worker, slot)
            self._numbers += 1
            self._round_robin = worker + 1

    def _next_worker(self) -> int | None:
        """The worker that gets the next task; None while it has enough."""
        count = len(self._active)
        start = self._round_robin
        active = [worker % count for worker in range(start, start + count) if self._active[worker % count]]
        if not self._in_order:
            active.sort(key=self._tasks_of)
        return active[0] if active and self._tasks_of(active[0]) < self._most_tasks else None

    def _tasks_of(self, worker: int) -> int:
        return sum(task.worker == worker for task in self._tasks.values())
