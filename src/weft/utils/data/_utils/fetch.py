"""Fetching: what makes a loader's batches, in its own process and in its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from weft._lazy.flushing import flush_pending
from weft.errors import ArgumentError, DTypeError
from weft.utils.data._utils.collate import absent_sample, default_collate
from weft.utils.data._utils.one_pass import one_pass

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyDataset, Batch, Index, Sample


def samples_at(dataset: AnyDataset, indices: Sequence[Index]) -> list[Sample]:
    """The samples at some indices. Each is computed by a separate program.

    As one program, a batch's samples would be compiled again whenever random transforms choose differently.
    """
    return [_computed(dataset[index]) for index in indices]


def _computed(sample: Sample) -> Sample:
    flush_pending()
    return sample


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a loader that makes batches, in the loader's process and in its workers.

    iterable    the dataset is iterated over, not indexed
    batched     a batch is collated from a list of samples; otherwise from one sample
    drop_last   a smaller last batch of an iterable dataset is dropped
    """

    dataset: Any
    iterable: bool
    batched: bool
    drop_last: bool
    collate_fn: Callable[[Any], Any]

    def samples(self) -> Callable[[Sequence[Index]], list[Sample]]:
        """A function for one pass, from indices to samples. `StopIteration` at the end of an iterable dataset."""
        if self.iterable:
            return self._consecutive()
        return self._chosen if self.batched else self.dataset.__getitem__

    def collated(self, samples: list[Sample], indices: Sequence[Index]) -> Batch:
        """A batch of samples. If a sample is None, the error names its index in the dataset."""
        try:
            return self.collate_fn(samples)
        except (ArgumentError, DTypeError) as error:
            indexed = self.batched and not self.iterable and self.collate_fn is default_collate
            if indexed and (text := absent_sample(samples, indices)) is not None:
                raise type(error)(text) from error.__cause__
            raise

    def _chosen(self, indices: Sequence[Index]) -> list[Sample]:
        at_once = getattr(self.dataset, "__getitems__", None)
        return at_once(indices) if at_once else samples_at(self.dataset, indices)

    def _consecutive(self) -> Callable[[Sequence[Index]], list[Sample]]:
        ahead = one_pass(self.dataset)
        ended = False

        def take(indices: Sequence[Index]) -> list[Sample]:
            nonlocal ended
            if ended:
                raise StopIteration
            if not self.batched:
                return next(ahead)
            batch = [_computed(sample) for sample in islice(ahead, len(indices))]
            # An iterable whose end has been seen is not asked again, since some begin anew then.
            ended = len(batch) < len(indices)
            if not batch or (ended and self.drop_last):
                raise StopIteration
            return batch

        return take
