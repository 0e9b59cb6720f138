"""Datasets, put together and split."""

from __future__ import annotations

import pytest

import weft
from weft.utils import data

NUMBERS = data.TensorDataset(weft.arange(10.0).reshape(5, 2), weft.arange(5))


class Counting(data.IterableDataset):
    def __iter__(self):
        return iter(range(5))

    def __len__(self):
        return 5


class AtOnce(data.Dataset):
    """Doubles its indices, a list of them at a time; `extra` makes it answer with too many."""

    def __init__(self, extra=()):
        self.extra = extra

    def __len__(self):
        return 5

    def __getitems__(self, indices):
        return [2 * index for index in indices] + list(self.extra)


def test_samples_of_tensors_are_rows():
    row, number = NUMBERS[3]
    assert (row.tolist(), number.item(), len(NUMBERS)) == ([6, 7], 3, 5)


def test_datasets_are_put_together():
    both = NUMBERS + data.Subset(NUMBERS, [4, 0])
    assert (len(both), both.cumulative_sizes) == (7, [5, 7])
    assert [both[at][1].item() for at in (0, 4, 5, 6, -1)] == [0, 4, 4, 0, 0]
    assert list(Counting() + Counting()) == [*range(5)] * 2
    assert len(data.ChainDataset([Counting(), Counting()])) == 10
    assert data.StackDataset([1, 2], [3, 4])[1] == (2, 4)
    assert data.StackDataset(a=[1, 2], b=[3, 4])[0] == {"a": 1, "b": 3}
    assert len(data.StackDataset([1, 2])) == 2


def test_samples_are_taken_at_once_where_the_dataset_can():
    assert data.Subset(AtOnce(), [4, 0, 2]).__getitems__([0, 2]) == [8, 4]
    assert data.Subset([5, 6, 7], [2, 0]).__getitems__([0, 1]) == [7, 5]
    assert data.StackDataset(AtOnce(), [*"abcde"]).__getitems__([1, 3]) == [(2, "b"), (6, "d")]
    assert data.StackDataset(n=AtOnce(), c=[*"abcde"]).__getitems__([4]) == [{"n": 8, "c": "e"}]
    assert data.StackDataset([1], [2]).__getitems__([]) == []
    assert [x.tolist() for x in data.DataLoader(AtOnce(), 3)] == [[0, 2, 4], [6, 8]]


def test_a_random_split_is_a_partition():
    for lengths in ([3, 2], [0.5, 0.5]):
        parts = data.random_split(range(5), lengths, generator=weft.Generator().manual_seed(0))
        assert [len(part) for part in parts] == [3, 2]
        assert sorted(x for part in parts for x in part) == [*range(5)]
    assert [len(part) for part in data.random_split(range(10), [0.34, 0.33, 0.33])] == [4, 3, 3]
    with pytest.warns(UserWarning, match="^Length of split at index 1 is 0"):
        data.random_split(range(1), [0.9, 0.1])


class Half(data.Subset):
    def __getitem__(self, index):
        return self.dataset[index] / 2


REFUSED = [
    ("TensorDataset(weft.ones(1), weft.ones(2))", AssertionError, "Size mismatch between tensors"),
    ("StackDataset([1], [1, 2])", ValueError, "Size mismatch between datasets"),
    ("StackDataset()", ValueError, "At least one dataset should be passed"),
    ("StackDataset([1], a=[1])", ValueError, "Supported either ``tuple``- .* but both types are given."),
    (
        "StackDataset(AtOnce([1])).__getitems__([0])",
        ValueError,
        "Nested dataset's output size mismatch. Expected 1, got 2",
    ),
    ("ConcatDataset([])", AssertionError, "datasets should not be an empty iterable"),
    ("ConcatDataset([Counting()])", AssertionError, "ConcatDataset does not support IterableDataset"),
    ("ConcatDataset([[1]])[-2]", ValueError, "absolute value of index should not exceed dataset length"),
    ("list(ChainDataset([[1]]))", AssertionError, "ChainDataset only supports IterableDataset"),
    ("len(ChainDataset([[1]]))", AssertionError, "ChainDataset only supports IterableDataset"),
    ("Half([1], [0])", NotImplementedError, "Half overrides __getitem__ but not __getitems__. When subclassing Subset"),
    ("Dataset()[0]", NotImplementedError, "Subclasses of Dataset should implement __getitem__."),
    ("IterableDataset().__iter__()", NotImplementedError, "Subclasses of IterableDataset should implement __iter__."),
    ("random_split([1, 2], [3])", ValueError, "Sum of input lengths does not equal the length of the input dataset!"),
    ("random_split([1, 2], [1.5, -0.5])", ValueError, "Fraction at index 0 is not between 0 and 1"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(text, vars(data) | {"weft": weft, "Counting": Counting, "AtOnce": AtOnce, "Half": Half})


@pytest.mark.parametrize(("shuffle", "workers"), [(False, 0), (True, 0), (True, 1)])
def test_samples_keep_the_names_of_their_dims(shuffle, workers):
    x = weft.arange(12.0).reshape(4, 3).rename("row", "column")
    whole = data.TensorDataset(x, weft.arange(4, names=("row",)))
    assert [t.names for t in whole[0]] == [("column",), ()]
    assert [t.names for t in whole[[0, 2]]] == [("row", "column"), ("row",)]
    datasets = [data.StackDataset(whole, whole)]
    if not workers:  # each loader starts its own
        datasets += [whole, data.Subset(whole, [3, 1]), data.random_split(whole, [2, 2])[0]]
    for dataset in datasets:
        options = {"num_workers": 1, "multiprocessing_context": "forkserver"} if workers else {}
        batch = next(iter(data.DataLoader(dataset, batch_size=2, shuffle=shuffle, **options)))
        first = batch[0][0] if isinstance(dataset, data.StackDataset) else batch[0]
        assert first.names == (None, "column")
        assert first.refine_names("row", ...).names == ("row", "column")


def test_padded_batches_keep_the_names_of_samples():
    samples = [weft.ones(n, 2, names=("time", "width")) for n in (1, 3)]
    assert data.pad_to_buckets([4])(samples).names == (None, "time", "width")
    samples[0] = samples[0].rename("width", "time")
    with pytest.raises(RuntimeError, match="names"):
        data.pad_to_buckets([4])(samples)


def test_samples_of_a_batch_are_tensors_of_their_own():
    whole = data.TensorDataset(weft.arange(6.0).reshape(3, 2), weft.arange(3))
    (x, last), (y, first) = whole.__getitems__([-1, 0])
    x.add_(1)
    y.numpy()[0] = 7
    assert (x.tolist(), last.item(), y.tolist(), first.item()) == ([5, 6], 2, [7, 1], 0)
    assert whole[2][0].tolist() == [4, 5]
    with pytest.raises(IndexError):
        whole.__getitems__([0, 3])
