"""Samplers: the order in which a dataset is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weft._base.dtype import float64
from weft._tensor.codegen import op
from weft._tensor.convert import as_tensor
from weft._tensor.generator import Generator
from weft.errors import ArgumentError, ValueRangeError
from weft.utils.data._utils.draw import host_generator, permutation
from weft.utils.data._utils.one_pass import one_pass

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Index


T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """Indices, or lists of them, in order. A subclass defines `__iter__`, and `__len__` if the length is known."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """The indices in ascending order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


_DRAWN_AT_ONCE = 1024
"""Indices; a pass may have any number of them, of which a program often takes few."""


class RandomSampler(Sampler[int]):
    """A random order: without replacement, all indices once and then again; with replacement, independent draws."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ArgumentError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueRangeError(
                f"num_samples should be a positive integer value, but got num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """The number of indices in a pass; by default, the number of samples."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, left = len(self.data_source), self.num_samples
        if self.replacement:
            generator = host_generator(self.generator)
            while left > 0:
                yield from generator.integers(count, size=min(left, _DRAWN_AT_ONCE)).tolist()
                left -= _DRAWN_AT_ONCE
            return
        while left > 0:
            yield from islice(permutation(count, self.generator), left)
            left -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for at in permutation(len(self.indices), self.generator):  # drawn when the first index is asked for
            yield self.indices[at]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with the given weights, which need not sum to one."""

    def __init__(
        self, weights: object, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueRangeError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueRangeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights: Any = as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ValueRangeError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = op.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last may be shorter, unless `drop_last`."""

    def __init__(self, sampler: Iterable[Index], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueRangeError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueRangeError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = one_pass(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count: int = len(self.sampler)  # pyright: ignore[reportArgumentType]  TypeError where it has no length
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
