"""The loader in its own process, and its options."""

from __future__ import annotations

import itertools
import os

import pytest

import weft
from tests.utils.data.test_dataset import NUMBERS, Counting
from weft._base.state import ambient
from weft.utils import data
from weft.utils.data import dataloader


def test_a_loader_gives_batches():
    loader = data.DataLoader(NUMBERS, 2)
    assert [number.tolist() for _, number in loader] == [[0, 1], [2, 3], [4]]
    assert (len(loader), len(iter(loader)), len(data.DataLoader(NUMBERS, 2, drop_last=True))) == (3, 3, 2)
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


class Itself(data.IterableDataset):
    """A dataset that is its own iterator, which begins anew at each `iter`."""

    def __iter__(self):
        self.numbers = iter(range(5))
        return self

    def __next__(self):
        return next(self.numbers)


def test_a_pass_begins_an_iterable_dataset_once():
    assert [x.tolist() for x in data.DataLoader(Itself(), 2)] == [[0, 1], [2, 3], [4]]
    assert list(data.DataLoader(Itself(), None)) == [*range(5)]


class Short(Counting):
    def __len__(self):
        return 1


def test_a_length_that_an_iterable_dataset_gets_wrong_is_told():
    loader = data.DataLoader(Short(), 3)
    assert len(list(loader)) == 2
    assert len(loader) == 1
    with pytest.warns(UserWarning, match=r"was reported to be 1\(when accessing len\(dataloader\)\), but 2 samples"):
        list(loader)


def test_asking_for_a_batch_computes_what_is_pending():
    batches = iter(data.DataLoader([1, 2]))
    next(batches)
    pending = weft.ones(2) + 1
    assert pending._read().is_pending
    next(batches)
    assert not pending._read().is_pending
    assert ambient().pending is not None


def test_the_order_does_not_depend_on_the_number_of_draws_before_a_pass():
    def orders():
        loader = data.DataLoader(range(20), 20, shuffle=True, generator=weft.Generator().manual_seed(3))
        return [batch.tolist() for _ in range(2) for batch in loader]

    first, second = orders()
    assert first != second
    assert orders() == [first, second]


def test_options_that_change_nothing_are_accepted():
    loader = data.DataLoader([1, 2], pin_memory=True, pin_memory_device="cuda", in_order=False)
    assert [batch.item() for batch in loader] == [1, 2]
    assert (loader.prefetch_factor, loader.num_workers, loader.multiprocessing_context) == (None, 0, None)


def test_too_many_workers_are_told(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    with pytest.warns(
        UserWarning, match=r"^This DataLoader will create 2 worker processes in total. Our suggested max"
    ):
        loader = data.DataLoader([1], num_workers=2)
    assert loader.prefetch_factor == 2


def test_what_a_loader_reads_is_fixed():
    loader = data.DataLoader([1, 2], 2)
    with pytest.raises(ValueError, match=r"^batch_size attribute should not be set after DataLoader is initialized$"):
        loader.batch_size = 1
    loader.collate_fn = sum
    assert list(loader) == [3]


REFUSED = [
    ("[1], 0", ValueError, "batch_size should be a positive integer value, but got batch_size=0"),
    ("[1], sampler=[0], shuffle=True", ValueError, "sampler option is mutually exclusive with shuffle"),
    (
        "[1], 2, batch_sampler=[[0]]",
        ValueError,
        "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
    ),
    (
        "[1], None, drop_last=True",
        ValueError,
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
    ),
    (
        "Counting(), shuffle=True",
        ValueError,
        "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True",
    ),
    (
        "Counting(), sampler=[0]",
        ValueError,
        r"DataLoader with IterableDataset: expected unspecified sampler option, but got sampler=\[0\]",
    ),
    (
        "Counting(), batch_sampler=[[0]]",
        ValueError,
        r"DataLoader with IterableDataset: expected unspecified batch_sampler option, but got batch_sampler=\[\[0\]\]",
    ),
    ("[1], num_workers=-1", ValueError, "num_workers option should be non-negative; use num_workers=0 to disable"),
    ("[1], timeout=-1", ValueError, "timeout option should be non-negative"),
    ("[1], prefetch_factor=2", ValueError, "prefetch_factor option could only be specified in multiprocessing.let num"),
    ("[1], num_workers=1, prefetch_factor=-1", ValueError, "prefetch_factor option should be non-negative"),
    ("[1], persistent_workers=True", ValueError, "persistent_workers option needs num_workers > 0"),
    (
        "[1], multiprocessing_context='spawn'",
        ValueError,
        r"multiprocessing_context can only be used with multi-process loading \(num_workers > 0\), but got num_w",
    ),
    (
        "[1], num_workers=1, multiprocessing_context='no'",
        ValueError,
        "multiprocessing_context option should specify a valid start method in .* but got multiprocessing_context='no'",
    ),
    (
        "[1], num_workers=1, multiprocessing_context=3",
        TypeError,
        "multiprocessing_context option should be a valid context object or a string .* multiprocessing_context=3",
    ),
]


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_options_that_do_not_fit_are_refused(options, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(f"DataLoader({options})", vars(data) | {"Counting": Counting})


class Described:
    """A loader that is no `DataLoader`, with the attributes that PyTorch's iterators read; fastai has such a class."""

    _auto_collation, drop_last, in_order, pin_memory, persistent_workers = False, False, True, False, False
    _IterableDataset_len_called = generator = worker_init_fn = multiprocessing_context = None
    prefetch_factor, timeout, _dataset_kind = 2, 0, 1

    def __init__(self, num_workers: int) -> None:
        self.dataset, self.num_workers = self, num_workers
        self._index_sampler = itertools.count()

    def collate_fn(self, batch):
        return batch

    def __iter__(self):
        return iter([[1, 2], [3]])


@pytest.mark.parametrize(("iterator", "workers"), [("_SingleProcess", 0), ("_MultiProcessing", 1)])
def test_the_iterators_take_loaders_of_other_classes(iterator, workers):
    kind = getattr(dataloader, f"{iterator}DataLoaderIter")
    assert list(kind(Described(workers))) == [[1, 2], [3]]
