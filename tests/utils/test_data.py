"""Datasets, samplers, collation and the loader."""

from __future__ import annotations

from collections import Counter, namedtuple

import numpy as np
import pytest

import weft
from weft._base.state import ambient
from weft.utils import data

NUMBERS = data.TensorDataset(weft.arange(10.0).reshape(5, 2), weft.arange(5))


class Counting(data.IterableDataset):
    def __iter__(self):
        return iter(range(5))

    def __len__(self):
        return 5


def test_samples_of_tensors_are_rows():
    row, number = NUMBERS[3]
    assert (row.tolist(), number.item(), len(NUMBERS)) == ([6, 7], 3, 5)


def test_datasets_are_put_together():
    both = NUMBERS + data.Subset(NUMBERS, [4, 0])
    assert len(both) == 7
    assert [both[at][1].item() for at in (0, 4, 5, 6, -1)] == [0, 4, 4, 0, 0]
    assert list(Counting() + Counting()) == [*range(5)] * 2
    assert len(data.ChainDataset([Counting(), Counting()])) == 10
    assert data.StackDataset([1, 2], [3, 4])[1] == (2, 4)
    assert data.StackDataset(a=[1, 2], b=[3, 4])[0] == {"a": 1, "b": 3}
    assert len(data.StackDataset([1, 2])) == 2


def test_a_random_split_is_a_partition():
    for lengths in ([3, 2], [0.5, 0.5]):
        parts = data.random_split(range(5), lengths, generator=weft.Generator().manual_seed(0))
        assert [len(part) for part in parts] == [3, 2]
        assert sorted(x for part in parts for x in part) == [*range(5)]
    with pytest.warns(UserWarning, match="^Length of split at index 1 is 0"):
        data.random_split(range(1), [0.9, 0.1])


def test_samplers_choose_the_order():
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(data.RandomSampler("abc")) == [0, 1, 2]
    assert Counter(data.RandomSampler("abc", num_samples=6)) == {0: 2, 1: 2, 2: 2}
    assert set(data.RandomSampler("abc", replacement=True, num_samples=50)) == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([4, 7])) == [4, 7]
    assert list(data.WeightedRandomSampler([0.0, 1.0], 3)) == [1, 1, 1]
    assert sorted(data.WeightedRandomSampler([1.0, 1.0], 2, replacement=False)) == [0, 1]
    batches = data.BatchSampler(range(5), 2, drop_last=False)
    assert (list(batches), len(batches)) == ([[0, 1], [2, 3], [4]], 3)
    short = data.BatchSampler(range(5), 2, drop_last=True)
    assert (list(short), len(short)) == ([[0, 1], [2, 3]], 2)


def test_orders_follow_the_generator():
    def order():
        return list(data.RandomSampler(range(20), generator=weft.Generator().manual_seed(1)))

    assert order() == order() != list(range(20))


def test_samples_are_collated_by_entry():
    Pair = namedtuple("Pair", "x y")
    found = data.default_collate([Pair(1, {"a": 1.5, "b": "s"}), Pair(2, {"a": 2.5, "b": "t"})])
    assert found.x.tolist() == [1, 2]
    assert found.y["a"].tolist() == [1.5, 2.5]
    assert (found.y["a"].dtype, found.x.dtype, found.y["b"]) == (weft.float64, weft.int64, ["s", "t"])
    assert data.default_collate([weft.ones(2), weft.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert data.default_collate([np.ones(1, np.float32)] * 2).dtype is weft.float32
    assert data.default_collate([np.float32(1)] * 2).dtype is weft.float32
    converted = data.default_convert(Pair([np.ones(1)], {"a": np.ones(1)}))
    assert isinstance(converted.x[0], weft.Tensor)
    assert data.default_convert("text") == "text"


def test_a_loader_gives_batches():
    loader = data.DataLoader(NUMBERS, 2)
    assert [number.tolist() for _, number in loader] == [[0, 1], [2, 3], [4]]
    assert (len(loader), len(data.DataLoader(NUMBERS, 2, drop_last=True))) == (3, 2)
    shuffled = data.DataLoader(NUMBERS, 5, shuffle=True)
    assert sorted(next(iter(shuffled))[1].tolist()) == [*range(5)]
    assert list(data.DataLoader([3, 4], batch_size=None)) == [3, 4]
    assert list(data.DataLoader([3, 4], 2, collate_fn=sum)) == [7]
    chosen = data.DataLoader(NUMBERS, batch_sampler=[[4], [0, 1]])
    assert ([number.tolist() for _, number in chosen], len(chosen)) == ([[4], [0, 1]], 2)
    assert [x.tolist() for x in data.DataLoader([5, 6, 7], sampler=[2, 0])] == [[7], [5]]


def test_a_loader_reads_iterable_datasets():
    loader = data.DataLoader(Counting(), 2)
    assert ([x.tolist() for x in loader], len(loader)) == ([[0, 1], [2, 3], [4]], 3)
    assert [x.tolist() for x in data.DataLoader(Counting(), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(data.DataLoader(Counting(), None)) == [*range(5)]


def test_asking_for_a_batch_computes_what_is_pending():
    batches = iter(data.DataLoader([1, 2]))
    next(batches)
    pending = weft.ones(2) + 1
    assert pending._read().array is None
    next(batches)
    assert pending._read().array is not None
    assert ambient().pending is not None


REFUSED = [
    (
        "DataLoader([1], batch_size=0)", ValueError,
        "batch_size should be a positive integer value, but got batch_size=0",
    ),
    ("DataLoader([1], sampler=[0], shuffle=True)", ValueError, "sampler option is mutually exclusive with shuffle"),
    (
        "DataLoader([1], 2, batch_sampler=[[0]])", ValueError,
        "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
    ),
    (
        "DataLoader([1], None, drop_last=True)", ValueError,
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
    ),
    (
        "DataLoader(Counting(), shuffle=True)", ValueError,
        "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True",
    ),
    ("TensorDataset(weft.ones(1), weft.ones(2))", RuntimeError, "Size mismatch between tensors"),
    ("StackDataset([1], [1, 2])", ValueError, "Size mismatch between datasets"),
    ("StackDataset()", ValueError, "give datasets either by position or by name"),
    ("ConcatDataset([])", ValueError, "datasets should not be an empty iterable"),
    ("ConcatDataset([Counting()])", TypeError, "ConcatDataset does not support IterableDataset"),
    ("ConcatDataset([[1]])[-2]", ValueError, "absolute value of index should not exceed dataset length"),
    ("ChainDataset([[1]]).__iter__()", TypeError, "ChainDataset only supports IterableDataset"),
    ("Dataset()[0]", NotImplementedError, "Subclasses of Dataset should implement __getitem__."),
    ("IterableDataset().__iter__()", NotImplementedError, "Subclasses of IterableDataset should implement __iter__."),
    ("Sampler().__iter__()", NotImplementedError, "Subclasses of Sampler should implement __iter__."),
    ("random_split([1, 2], [3])", ValueError, "Sum of input lengths does not equal the length of the input dataset!"),
    ("random_split([1, 2], [1.5, -0.5])", ValueError, "Fraction at index 0 is not between 0 and 1"),
    ("RandomSampler([1], replacement=1)", TypeError, "replacement should be a boolean value, but got replacement=1"),
    (
        "RandomSampler([1], num_samples=0)", ValueError,
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    (
        "WeightedRandomSampler([1.0], 0)", ValueError,
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    (
        "WeightedRandomSampler([[1.0]], 1)", ValueError,
        r"weights should be a 1d sequence but given weights have shape \(1, 1\)",
    ),
    ("BatchSampler([1], 1, 1)", ValueError, "drop_last should be a boolean value, but got drop_last=1"),
    ("default_collate([[1], [1, 2]])", RuntimeError, "each element in list of batch should be of equal size"),
    (
        "default_collate([object()])", TypeError,
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(text, vars(data) | {"weft": weft, "Counting": Counting})


def test_worker_processes_are_not_there_yet():
    with pytest.warns(UserWarning, match="num_workers=2: there are no worker processes yet"):
        loader = data.DataLoader([1, 2], num_workers=2, pin_memory=True, persistent_workers=True)
    assert [batch.item() for batch in loader] == [1, 2]
