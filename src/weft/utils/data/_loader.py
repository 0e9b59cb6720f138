"""The loader: batches of a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from weft._base.state import ambient
from weft._lazy.realize import flush
from weft._tensor.generator import Generator
from weft.errors import ValueRangeError
from weft.utils.data._collate import default_collate, default_convert
from weft.utils.data._dataset import IterableDataset
from weft.utils.data._sampler import BatchSampler, RandomSampler, SequentialSampler


class DataLoader:
    """Batches of a dataset, made in this process.

    What is pending when the next batch is asked for is computed then, so a loop without an optimizer step does not
    pile up work. There are no worker processes yet: options about them, and about pinned memory, are accepted. Without
    `batch_size`, samples come one by one, not stacked.
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None, batch_sampler: Iterable[Any] | None = None, num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None, *,
        generator: Generator | None = None, prefetch_factor: int | None = None, persistent_workers: bool = False,
    ) -> None:  # fmt: skip
        del pin_memory, timeout, worker_init_fn, prefetch_factor, persistent_workers
        if num_workers:
            warnings.warn(
                f"num_workers={num_workers}: there are no worker processes yet, batches are made in this process",
                stacklevel=2,
            )
        self._iterable = isinstance(dataset, IterableDataset)
        _check(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = 0
        self.generator = generator
        self.drop_last = drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        if sampler is None and not self._iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        batched = batch_sampler is not None or batch_size is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def __len__(self) -> int:
        if self._iterable and self.batch_size is not None:
            count = len(self.dataset)
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        source: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(self.dataset if self._iterable else source)

    def __iter__(self) -> Iterator[Any]:
        for samples in self._samples():
            state = ambient()
            if state.capture is None:
                flush(state.pending)
            yield self.collate_fn(samples)

    def _samples(self) -> Iterator[Any]:
        """What each batch is collated from."""
        if self._iterable:
            yield from self._consecutive()
        elif self.batch_sampler is None:
            for index in self.sampler or ():
                yield self.dataset[index]
        else:
            for indices in self.batch_sampler:
                yield [self.dataset[index] for index in indices]

    def _consecutive(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


def _check(iterable: bool, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
    """Refuse options that contradict each other."""
    if iterable:
        for name, given in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
            if given is not None:
                raise ValueRangeError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}"
                )
    if sampler is not None and shuffle:
        raise ValueRangeError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueRangeError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
        )
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueRangeError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
