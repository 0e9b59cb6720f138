"""Datasets: samples by index, or as a stream."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weft._tensor.convert import rows_of
from weft._tensor.dim_names import names_of
from weft._tensor.generator import Generator
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DatasetError, ValueRangeError
from weft.utils.data._utils.draw import permutation
from weft.utils.data._utils.fetch import samples_at

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyDataset, Batch, Index, Sample


T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by index. A subclass defines `__getitem__`, and `__len__`, which samplers need."""

    def __getitem__(self, index: Index) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: AnyDataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """A stream of samples. A subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: AnyDataset) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Samples along the first dim of tensors; `AssertionError` if its sizes differ, `TypeError` for other objects."""

    def __init__(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"TensorDataset: tensors are expected, but got {kind_and_advice(tensor)}")
        if len({tensor.shape[0] for tensor in tensors}) > 1:
            raise DatasetError("Size mismatch between tensors")
        self.tensors: tuple[Any, ...] = tensors

    def __getitem__(self, index: Index) -> Sample:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices: Sequence[Index]) -> list[Sample]:
        if any(tensor.device.type != "cpu" for tensor in self.tensors) or {*map(type, indices)} != {int}:
            return samples_at(self, indices)
        # Indexing without XLA: nothing is compiled. The samples of a batch are parts of one array.
        columns = [rows_of(t.detach()._host().take(indices, 0), t.dtype, names_of(t)[1:]) for t in self.tensors]
        return list(zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Samples of several datasets combined: as tuples, or as dicts if the datasets are given by name."""

    def __init__(self, *args: AnyDataset, **kwargs: AnyDataset) -> None:
        if args and kwargs:
            raise ValueRangeError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        if not args and not kwargs:
            raise ValueRangeError("At least one dataset should be passed")
        self.datasets: Any = kwargs or args
        datasets = list(kwargs.values()) or list(args)
        if len({len(dataset) for dataset in datasets}) > 1:
            raise ValueRangeError("Size mismatch between datasets")
        self._length = len(datasets[0])

    def __getitem__(self, index: Index) -> Sample:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[Index]) -> list[Sample]:
        if isinstance(self.datasets, dict):
            columns = [_items(dataset, indices) for dataset in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(zip(*(_items(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def _items(dataset: AnyDataset, indices: Sequence[Index]) -> list[Sample]:
    """The samples at some indices, read at once if the dataset supports it."""
    if not callable(getattr(dataset, "__getitems__", None)):
        return samples_at(dataset, indices)
    items = dataset.__getitems__(indices)
    if len(items) != len(indices):
        raise ValueRangeError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}")
    return items


class ConcatDataset(Dataset[Any]):
    """Datasets one after another, by index; `AssertionError` if there are none, and for iterable datasets."""

    def __init__(self, datasets: Iterable[AnyDataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise DatasetError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise DatasetError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Sample:
        if index < 0:
            if -index > len(self):
                raise ValueRangeError("absolute value of index should not exceed dataset length")
            index += len(self)
        at = bisect_right(self.cumulative_sizes, index)
        return self.datasets[at][index - (self.cumulative_sizes[at - 1] if at else 0)]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another; `AssertionError` for other datasets."""

    def __init__(self, datasets: Iterable[AnyDataset]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[AnyDataset]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise DatasetError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Batch]:
        return chain.from_iterable(self._checked())

    def __len__(self) -> int:
        return sum(map(len, self._checked()))


class Subset(Dataset[Any]):
    """The samples of a dataset at some indices.

    A subclass that overrides `__getitem__` must override `__getitems__` too; else `NotImplementedError` is raised.
    """

    def __init__(self, dataset: AnyDataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{kind.__name__} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding "
                "__getitem__, you must also override __getitems__ to ensure DataLoader works correctly with your "
                "custom logic: it takes a list of indices and returns a list of samples"
            )

    def __getitem__(self, index: Index) -> Sample:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[Index]) -> list[Sample]:
        chosen = [self.indices[index] for index in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(chosen)
        return [self.dataset[index] for index in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: AnyDataset, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Disjoint random subsets of the given sizes, or of shares that sum to one."""
    sizes = _sizes(lengths, len(dataset)) if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 else list(lengths)
    if sum(sizes) != len(dataset):
        raise ValueRangeError("Sum of input lengths does not equal the length of the input dataset!")
    order = permutation(sum(map(int, sizes)), generator)
    ends = list(accumulate(map(int, sizes)))
    return [Subset(dataset, order[end - int(size) : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(shares: Sequence[float], count: int) -> list[int]:
    """Integer sizes for shares; the remainder is given to the first ones."""
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
