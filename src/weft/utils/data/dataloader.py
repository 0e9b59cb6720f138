"""The loader, which makes batches of a dataset."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weft._absent.refused import _sharding_worker_init_fn as _sharding_worker_init_fn
from weft._absent.types import _InfiniteConstantSampler as _InfiniteConstantSampler
from weft._base.site import ends_at_user
from weft._base.types import SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.generator import Generator
from weft.errors import ArgumentError, StateDictError, ValueRangeError
from weft.utils.data._datapipes import IterDataPipe, apply_shuffle_settings
from weft.utils.data._utils.collate import default_collate as default_collate
from weft.utils.data._utils.collate import default_convert as default_convert
from weft.utils.data._utils.fetch import Source
from weft.utils.data._utils.info import get_worker_info as get_worker_info
from weft.utils.data._utils.iterator import LoaderIterator as _BaseDataLoaderIter  # noqa: F401  libraries' name for it
from weft.utils.data._utils.iterator import LocalIterator, WorkerIterator
from weft.utils.data._utils.position import LoaderPosition, initial_position, position_of_state
from weft.utils.data.dataset import IterableDataset
from weft.utils.data.distributed import DistributedSampler
from weft.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyDataset, Batch, Index

T = TypeVar("T", covariant=True)
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]
_SingleProcessDataLoaderIter = LocalIterator
_MultiProcessingDataLoaderIter = WorkerIterator


class DataLoader(Generic[T]):
    """Batches of a dataset, made in this process or, with `num_workers`, in other processes.

    Values that are pending when the next batch is asked for are computed then, so that a loop without optimizer steps
    does not accumulate them. If `batch_size` is None, samples come one by one, without a batch dim.

    Workers are forked on Linux. With `spawn` and `forkserver`, and elsewhere, the dataset and the functions must be
    picklable, and a script must protect what should run once by `if __name__ == "__main__":`. Workers compute on the
    CPU, and return tensors and arrays in shared memory. Python's, NumPy's and this package's generators are seeded
    from `generator`, differently in each worker and each pass. `pin_memory` and `pin_memory_device` have no effect.

    An exception in a worker is raised here with the same type. `RuntimeError` if a worker dies, or if a batch takes
    longer than `timeout` seconds; `ValueError` and `TypeError` for options that contradict each other.
    """

    def __init__(
        self,
        dataset: AnyDataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None,
        batch_sampler: Iterable[object] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], object] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        log_api_usage_once("python.data_loader")
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        if isinstance(dataset, IterDataPipe):
            dataset, shuffle = apply_shuffle_settings(dataset, shuffle), None
        _check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.drop_last = drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        if sampler is None:
            sampler = _default_sampler(dataset, iterable, bool(shuffle), generator)
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self.persistent_workers = persistent_workers
        self._iterable = iterable
        self._reported_length: int | None = None  # the last `len` of an iterable dataset
        self._iterator: WorkerIterator | None = None
        self._position: LoaderPosition | None = None  # that of the newest pass
        self._loaded: LoaderPosition | None = None  # the start of the next pass, from a loaded state
        self._complete = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and "_complete" in vars(self):
            raise ValueRangeError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """How workers are started; None means as Python is set to, and else by `fork` on Linux."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: str | BaseContext | None) -> None:
        self._context = None if value is None else _context(value, self.num_workers)

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are put together to batches; libraries ask by this name, as by the next ones."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._iterable else _DatasetKind.Map

    @property
    def _IterableDataset_len_called(self) -> int | None:
        return self._reported_length

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        count = self._reported_length = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    @ends_at_user
    def __iter__(self) -> Iterator[Batch]:
        if not self.num_workers or not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator.closed:
            iterator = self._iterator = self._get_iterator()
            return iterator
        self._iterator.restart(self)
        return self._iterator

    def _get_iterator(self) -> Any:
        """A new pass; libraries call it by this name."""
        return WorkerIterator(self) if self.num_workers else LocalIterator(self)

    def state_dict(self) -> SavedState:
        """The position of the newest pass, as numbers and lists for a checkpoint.

        It counts the batches that the loop was given, not those that workers have ready. After the end of a pass it is
        the start of the next one. `RuntimeError` for iterable datasets, which must keep their position themselves, and
        for `in_order=False` with several workers.
        """
        self._check_counted()
        return (self._loaded or self._position or initial_position(self)).state()

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Let the next pass continue after the batches counted in a state, without reading the samples before.

        With a `DistributedSampler`, whose epoch is set from the state, the state may come from another rank and from
        another number of processes: it counts samples of the order that all processes share. If `set_epoch` then sets
        another epoch, the pass starts at the beginning. `RuntimeError` for anything that is not such a state.
        """
        self._check_counted()
        loaded, sampler = position_of_state(state_dict), self.sampler
        if isinstance(sampler, DistributedSampler) and loaded.epoch is not None:
            sampler.set_epoch(loaded.epoch)
        elif isinstance(sampler, DistributedSampler) or loaded.epoch is not None:
            raise StateDictError(
                "DataLoader.load_state_dict(): of the loader that the state is from and this one, only one has a "
                "DistributedSampler; their orders differ"
            )
        self._loaded = loaded

    def _check_counted(self) -> None:
        if self._iterable:
            raise StateDictError(
                "DataLoader: an IterableDataset's place cannot be told from batches; save what the dataset itself knows"
            )
        if not self.in_order and self.num_workers > 1:
            raise StateDictError("DataLoader: with in_order=False, the batches so far are not the first of the order")

    def _next_position(self) -> LoaderPosition:
        """The position at which a pass that begins now starts."""
        start, loaded, self._loaded = initial_position(self), self._loaded, None
        self._position = loaded if loaded is not None and loaded.epoch == start.epoch else start
        return self._position

    def _source(self) -> Source:
        """The `Source` that makes the batches."""
        batched = self.batch_sampler is not None
        return Source(self.dataset, self._iterable, batched, self.drop_last, self.collate_fn)

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than processors that this process may use."""
        affinity = hasattr(os, "sched_getaffinity")
        available = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
        if self.num_workers > available:
            unsure = "" if affinity else " (`cpuset` is not taken into account)"
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number "
                f"of worker in current system is {available}{unsure}, which is smaller than what this DataLoader is "
                "going to create. Please be aware that excessive worker creation might get DataLoader running slow or "
                "even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )


class _DatasetKind:
    """Kinds of datasets: with an item for each index, or to be iterated over."""

    Map = 0
    Iterable = 1


_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class _Endless(Sampler[None]):
    """No indices, without end: an iterable dataset ends by itself."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _default_sampler(dataset: AnyDataset, iterable: bool, shuffle: bool, generator: Generator | None) -> Sampler[Index]:
    if iterable:
        return _Endless()
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _context(value: object, num_workers: int) -> BaseContext:
    """The multiprocessing context of a name."""
    if not num_workers:
        raise ValueRangeError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )
    methods = multiprocessing.get_all_start_methods()
    if isinstance(value, str) and value not in methods:
        raise ValueRangeError(
            f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
            f"multiprocessing_context={value!r}"
        )
    context = multiprocessing.get_context(value) if isinstance(value, str) else value
    if not isinstance(context, BaseContext):
        raise ArgumentError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={value}"
        )
    return context


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    """Refuse options about workers that contradict each other."""
    if num_workers < 0:
        raise ValueRangeError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueRangeError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueRangeError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueRangeError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueRangeError("persistent_workers option needs num_workers > 0")


def _check_order(
    iterable: bool,
    batch_size: object,
    shuffle: object,
    sampler: Iterable[Index] | None,
    batch_sampler: object,
    drop_last: bool,
) -> None:
    """Refuse options about the order of samples that contradict each other."""
    if iterable:
        for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
            if value is not None:
                raise ValueRangeError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueRangeError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueRangeError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
        )
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueRangeError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
