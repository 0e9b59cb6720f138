"""Samplers: orders, shares and batches."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.distributed as dist
from weft.utils import data
from weft.utils.data.distributed import DistributedSampler


def test_samplers_choose_the_order():
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(data.RandomSampler("abc")) == [0, 1, 2]
    assert Counter(data.RandomSampler("abc", num_samples=6)) == {0: 2, 1: 2, 2: 2}
    assert set(data.RandomSampler("abc", replacement=True, num_samples=50)) == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([4, 7])) == [4, 7]
    assert list(data.WeightedRandomSampler([0.0, 1.0], 3)) == [1, 1, 1]
    assert sorted(data.WeightedRandomSampler([1.0, 1.0], 2, replacement=False)) == [0, 1]
    assert data.WeightedRandomSampler([1, 2], 3).weights.dtype is weft.float64


def test_a_pass_of_any_length_is_drawn_as_it_is_read():
    sampler = data.RandomSampler(range(5), replacement=True, num_samples=10**10)
    loader = data.DataLoader(range(5), sampler=sampler, batch_size=700)
    assert (len(sampler), len(loader)) == (10**10, -(-(10**10) // 700))
    batches = [batch.tolist() for _, batch in zip(range(3), loader, strict=False)]
    assert Counter(x for batch in batches for x in batch).keys() == set(range(5))
    assert len(list(data.RandomSampler(range(5), replacement=True, num_samples=2500))) == 2500


def test_orders_follow_the_generator_and_compile_nothing(compilations):
    def order():
        return list(data.RandomSampler(range(20), generator=weft.Generator().manual_seed(1)))

    assert order() == order() != list(range(20))
    generator = weft.Generator().manual_seed(1)
    sampler = data.RandomSampler(range(20), generator=generator)
    assert list(sampler) != list(sampler)
    assert len(compilations()) == 0


@given(count=st.integers(0, 30), size=st.integers(1, 7))
def test_batches_hold_every_index_once(count, size):
    batches = data.BatchSampler(range(count), size, drop_last=False)
    assert [index for batch in batches for index in batch] == [*range(count)]
    assert len(list(batches)) == len(batches)
    full = data.BatchSampler(range(count), size, drop_last=True)
    assert [len(batch) for batch in full] == [size] * len(full) == [size] * (count // size)


@given(
    count=st.integers(0, 40),
    replicas=st.integers(1, 7),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_replicas_share_the_samples(count, replicas, shuffle, drop_last, epoch):
    samplers = [DistributedSampler(range(count), replicas, rank, shuffle, 3, drop_last) for rank in range(replicas)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    shares = [list(sampler) for sampler in samplers]
    each = count // replicas if drop_last else -(-count // replicas)
    assert [len(share) for share in shares] == [each] * replicas == [len(sampler) for sampler in samplers]
    dealt = [shares[at % replicas][at // replicas] for at in range(each * replicas)]
    assert {sampler.total_size for sampler in samplers} == {len(dealt)}
    assert len(set(dealt)) == min(count, len(dealt))
    assert dealt == [dealt[at % count] for at in range(len(dealt))]  # padded by starting again
    if not shuffle:
        assert dealt[:count] == [*range(min(count, len(dealt)))]


def test_replicas_shuffle_differently_in_each_epoch():
    sampler = DistributedSampler(range(20), num_replicas=1, rank=0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(DistributedSampler(range(20), 1, 0, seed=1)) == list(sampler)


def test_the_rank_comes_from_the_process_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.setenv("RANK", "5")

    def shares(rank):
        dist.init_process_group("threads")
        return list(DistributedSampler(range(5), shuffle=False))

    assert dist.run_threads(shares, nprocs=2) == [[0, 2, 4], [1, 3, 0]]


def test_the_rank_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert list(DistributedSampler(range(5), shuffle=False)) == [1, 3, 0]
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match=r"^Default process group has not been initialized.* set RANK in the"):
        DistributedSampler(range(5))


REFUSED = [
    ("Sampler().__iter__()", NotImplementedError, "Subclasses of Sampler should implement __iter__."),
    ("RandomSampler([1], replacement=1)", TypeError, "replacement should be a boolean value, but got replacement=1"),
    (
        "RandomSampler([1], num_samples=0)",
        ValueError,
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    ("RandomSampler([])", ValueError, "num_samples should be a positive integer value, but got num_samples=0"),
    (
        "WeightedRandomSampler([1.0], 0)",
        ValueError,
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    (
        "WeightedRandomSampler([1.0], 1, replacement=0)",
        ValueError,
        "replacement should be a boolean value, but got replacement=0",
    ),
    (
        "WeightedRandomSampler([[1.0]], 1)",
        ValueError,
        r"weights should be a 1d sequence but given weights have shape \(1, 1\)",
    ),
    ("BatchSampler([1], 0, False)", ValueError, "batch_size should be a positive integer value, but got batch_size=0"),
    ("BatchSampler([1], 1, 1)", ValueError, "drop_last should be a boolean value, but got drop_last=1"),
    ("DistributedSampler([1], 2, 2)", ValueError, r"Invalid rank 2, rank should be in the interval \[0, 1\]"),
    ("DistributedSampler([1], 2, -1)", ValueError, r"Invalid rank -1, rank should be in the interval \[0, 1\]"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(text, dict(vars(data)))


class Restarting:
    """Its own iterator, which begins anew at each `iter`, as Lightning's samplers are."""

    def __init__(self, items):
        self.items = items
        self.passes = 0

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        self.passes += 1
        self.rest = iter(self.items)
        return self

    def __next__(self):
        return next(self.rest)


@pytest.mark.parametrize(
    ("batches", "options"),
    [
        ([[0, 1], [2, 3], [4]], {"sampler": Restarting(range(5)), "batch_size": 2}),
        ([[0, 1], [2, 3]], {"sampler": Restarting(range(5)), "batch_size": 2, "drop_last": True}),
        ([0, 1, 2, 3, 4], {"sampler": Restarting(range(5)), "batch_size": None}),
        ([[3], [0, 1], [4, 2]], {"batch_sampler": Restarting([[3], [0, 1], [4, 2]])}),
        ([[3], [0]], {"batch_sampler": data.BatchSampler(Restarting([3, 0]), 1, False)}),
    ],
)
def test_a_pass_asks_for_one_iterator(batches, options):
    loader = data.DataLoader(weft.arange(5), **options)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == batches
    sampler = options.get("batch_sampler", options.get("sampler"))
    assert getattr(sampler, "sampler", sampler).passes == 2

    loader.load_state_dict(_state_after(loader, 1))
    assert [batch.tolist() for batch in loader] == batches[1:]


def _state_after(loader, count):
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return loader.state_dict()


def test_orders_are_drawn_when_the_first_index_is_asked_for():
    weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
    for sampler in (
        data.RandomSampler(range(10)),
        data.RandomSampler(range(10), replacement=True),
        data.WeightedRandomSampler(weights, 5),
        data.SubsetRandomSampler(range(10)),
    ):
        passes = [iter(sampler), iter(sampler)]
        orders = []
        for one in passes:
            weft.manual_seed(0)
            orders.append(list(one))
        assert orders[0] == orders[1]
