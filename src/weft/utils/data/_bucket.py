"""Batches of samples of similar length, padded to few lengths: XLA compiles a program for every shape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from weft._base.types import Arg, PyTree
from weft._tensor.convert import as_tensor
from weft._tensor.dim_names import names_of, set_names
from weft._tensor.generator import Generator
from weft._tensor.packing import padded_rows
from weft._tensor.tensor import Tensor
from weft.errors import DimNameError, ShapeError, ValueRangeError
from weft.ops._dims import Names
from weft.utils.data._utils.collate import collate, default_collate_fn_map
from weft.utils.data._utils.draw import host_generator
from weft.utils.data.sampler import Sampler

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch, Sample


def _checked(boundaries: Sequence[int]) -> list[int]:
    limits = list(boundaries)
    if not limits or limits[0] <= 0 or any(a >= b for a, b in pairwise(limits)):
        raise ValueRangeError(f"boundaries should be positive and ascending, but got {limits}")
    return limits


def _bucket_of(length: int, boundaries: list[int]) -> int:
    """The index of the first boundary that is at least this length."""
    at = bisect_left(boundaries, length)
    if at == len(boundaries):
        raise ValueRangeError(
            f"a sample of length {length} fits no bucket: the last boundary is {boundaries[-1]}; add a larger one or "
            "cut the sample"
        )
    return at


class BucketBatchSampler(Sampler[list[int]]):
    """Batches of samples of similar length: each sample belongs to the first of `boundaries` that its length fits.

    `lengths` are those of all samples. A batch has `batch_size` samples, or as many as fit into `max_tokens` when all
    are padded to their boundary. With `shuffle`, samples are shuffled within their bucket, and then the batches. The
    last batch of a bucket may be smaller, unless `drop_last`; so there are at most two shapes for each boundary, and
    one with `drop_last`. `ValueError` for lengths above the last boundary.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        boundaries: Sequence[int],
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        shuffle: bool = False,
        generator: Generator | None = None,
        drop_last: bool = False,
    ) -> None:
        if (batch_size is None) == (max_tokens is None):
            raise ValueRangeError("give either batch_size or max_tokens")
        self.boundaries = _checked(boundaries)
        self.batch_sizes = [batch_size or (max_tokens or 0) // boundary for boundary in self.boundaries]
        self.shuffle = shuffle
        self.generator = generator
        self.drop_last = drop_last
        if min(self.batch_sizes) < 1:
            raise ValueRangeError(
                f"a batch should have room for a sample, but got batch_size={batch_size}, max_tokens={max_tokens} "
                f"with a bucket of length {self.boundaries[-1]}"
            )
        self._buckets: list[list[int]] = [[] for _ in self.boundaries]
        for index, length in enumerate(lengths):
            self._buckets[_bucket_of(int(length), self.boundaries)].append(index)

    def __iter__(self) -> Iterator[list[int]]:
        drawn = host_generator(self.generator) if self.shuffle else None
        batches = []
        for bucket, size in zip(self._buckets, self.batch_sizes, strict=True):
            order = bucket if drawn is None else drawn.permutation(bucket).tolist()
            end = len(order) // size * size if self.drop_last else len(order)
            batches += [order[at : min(at + size, end)] for at in range(0, end, size)]
        places = range(len(batches)) if drawn is None else drawn.permutation(len(batches)).tolist()
        return (batches[position] for position in places)

    def __len__(self) -> int:
        counted = zip(map(len, self._buckets), self.batch_sizes, strict=True)
        return sum(count // size if self.drop_last else -(-count // size) for count, size in counted)


class _Padding:
    """The function that `pad_to_buckets` returns, as an object that can be pickled for workers."""

    def __init__(self, boundaries: list[int], padding_value: object) -> None:
        self._boundaries = boundaries
        self._padding_value = padding_value

    def __call__(self, batch: Batch) -> Batch:
        return self._padded(batch, self._padding_value)

    def _padded(self, batch: Batch, value: Arg) -> PyTree:
        """A padded batch; by entry, if the padding value is given by entry."""
        if value is None:
            return collate(batch, collate_fn_map=default_collate_fn_map)
        if isinstance(value, Mapping):
            return {name: self._padded([sample[name] for sample in batch], one) for name, one in value.items()}
        if isinstance(value, Sequence):
            if any(len(sample) != len(value) for sample in batch):
                raise ShapeError(f"padding_value has {len(value)} entries, but samples have {len(batch[0])}")
            return [self._padded([sample[at] for sample in batch], one) for at, one in enumerate(value)]
        padded = self._rows([_host(sample) for sample in batch], value)
        return set_names(padded, (None, *_common_names(batch, padded.ndim - 1)))

    def _rows(self, rows: list[np.ndarray], value: float) -> Tensor:
        width = self._boundaries[_bucket_of(max(map(len, rows)), self._boundaries)]
        return as_tensor(padded_rows(rows, width, value))


def _common_names(batch: Batch, ndim: int) -> Names:
    """The names of the dims of all samples; `RuntimeError` if they differ."""
    names = {names_of(sample) if isinstance(sample, Tensor) else (None,) * ndim: at for at, sample in enumerate(batch)}
    first, *others = names
    if others:
        raise DimNameError(
            f"cannot pad samples with different names: sample {names[first]} of the batch has dims {list(first)}, and "
            f"sample {names[others[0]]} has dims {list(others[0])}"
        )
    return first


def _host(sample: Sample) -> np.ndarray:
    return sample if isinstance(sample, np.ndarray) else as_tensor(sample).detach()._host()


def pad_to_buckets(boundaries: Sequence[int], padding_value: object = 0) -> Callable[[Sequence[Sample]], Batch]:
    """A `collate_fn` that pads the first dim of a batch's samples to the first of `boundaries` that fits the longest.

    Samples are tensors, arrays or lists of numbers: (length, …) each, (batch, boundary, …) together. If samples are
    tuples or mappings, `padding_value` is given by entry; None marks entries that `default_collate` stacks without
    padding: `pad_to_buckets([32, 64], (0, None))` pads the first entry of pairs. `ValueError` for samples longer than
    the last boundary.
    """
    return _Padding(_checked(boundaries), padding_value)
