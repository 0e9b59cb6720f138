"""What each batch is collated from: in the loader's own process and in its workers alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """What batches are made of; the part of a loader that its workers know.

    iterable    the dataset is read from its start to its end, not by index
    batched     a batch is collated from a list of samples; otherwise from one sample
    drop_last   a shorter last batch of an iterable dataset is left out
    """

    dataset: Any
    iterable: bool
    batched: bool
    drop_last: bool
    collate_fn: Callable[[Any], Any]

    def samples(self) -> Callable[[Any], Any]:
        """One pass: a function from what the sampler says to samples. `StopIteration` at an iterable dataset's end."""
        if self.iterable:
            return self._consecutive()
        return self._chosen if self.batched else self.dataset.__getitem__

    def _chosen(self, indices: Any) -> Any:
        at_once = getattr(self.dataset, "__getitems__", None)
        return at_once(indices) if at_once else [self.dataset[index] for index in indices]

    def _consecutive(self) -> Callable[[Any], Any]:
        ahead = iter(self.dataset)
        ended = False

        def take(indices: Any) -> Any:
            nonlocal ended
            if ended:
                raise StopIteration
            if not self.batched:
                return next(ahead)
            batch = list(islice(ahead, len(indices)))
            ended = len(batch) < len(indices)
            if not batch or (ended and self.drop_last):
                raise StopIteration
            return batch

        return take
