"""Datasets: samples by number, or one after another."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

from weft._base.dtype import int64
from weft._tensor.generator import Generator
from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ShapeError, ValueRangeError

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by number: a subclass writes `__getitem__`, and `__len__` for samplers to work with."""

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples one after another: a subclass writes `__iter__`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Samples along the first dim of tensors."""

    def __init__(self, *tensors: Tensor) -> None:
        if len({tensor.shape[0] for tensor in tensors}) > 1:
            raise ShapeError("Size mismatch between tensors")
        self.tensors: tuple[Any, ...] = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Samples of several datasets side by side, as tuples, or as dicts if the datasets are given by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueRangeError("give datasets either by position or by name")
        self.datasets: Any = kwargs or args
        listed = list(kwargs.values()) or list(args)
        if len({len(dataset) for dataset in listed}) > 1:
            raise ValueRangeError("Size mismatch between datasets")
        self._length = len(listed[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one after another, by number."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueRangeError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueRangeError("absolute value of index should not exceed dataset length")
            index += len(self)
        at = bisect_right(self.cumulative_sizes, index)
        return self.datasets[at][index - (self.cumulative_sizes[at - 1] if at else 0)]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        if not all(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentError("ChainDataset only supports IterableDataset")
        return chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class Subset(Dataset[Any]):
    """The samples of a dataset at some indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Disjoint random subsets of the given sizes, or of shares that add up to one."""
    sizes = _sizes(lengths, len(dataset)) if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 else list(lengths)
    if sum(sizes) != len(dataset):
        raise ValueRangeError("Sum of input lengths does not equal the length of the input dataset!")
    order = op.randperm((sum(map(int, sizes)),), dtype=int64, generator=generator).tolist()
    ends = list(accumulate(map(int, sizes)))
    return [Subset(dataset, order[end - int(size) : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(shares: Sequence[float], count: int) -> list[int]:
    """Whole sizes for shares; what is left over goes to the first ones."""
    for at, share in enumerate(shares):
        if not 0 <= share <= 1:
            raise ValueRangeError(f"Fraction at index {at} is not between 0 and 1")
    sizes = [math.floor(count * share) for share in shares]
    for at in range(count - sum(sizes)):
        sizes[at % len(sizes)] += 1
    for at, size in enumerate(sizes):
        if not size:
            warnings.warn(f"Length of split at index {at} is 0. This might result in an empty dataset.", stacklevel=3)
    return sizes
