"""Batches of few lengths."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.utils import data

BOUNDARIES = [4, 8, 16]


@given(
    lengths=st.lists(st.integers(0, 16), max_size=40),
    size=st.integers(1, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_batches_stay_within_a_bucket(lengths, size, shuffle, drop_last):
    sampler = data.BucketBatchSampler(lengths, BOUNDARIES, size, shuffle=shuffle, drop_last=drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    seen = [index for batch in batches for index in batch]
    assert len(set(seen)) == len(seen)
    if drop_last:
        assert {len(batch) for batch in batches} <= {size}
    else:
        assert sorted(seen) == [*range(len(lengths))]
    for batch in batches:
        assert len({np.searchsorted(BOUNDARIES, lengths[index]) for index in batch}) == 1


def test_a_batch_has_as_many_samples_as_its_tokens_allow():
    sampler = data.BucketBatchSampler([2] * 9 + [16] * 3, BOUNDARIES, max_tokens=32)
    assert [len(batch) for batch in sampler] == [8, 1, 2, 1]


def test_the_order_follows_the_generator():
    def order():
        generator = weft.Generator().manual_seed(0)
        return list(data.BucketBatchSampler([1, 5] * 10, BOUNDARIES, 4, shuffle=True, generator=generator))

    assert order() == order() != list(data.BucketBatchSampler([1, 5] * 10, BOUNDARIES, 4))


def test_samples_are_padded_to_a_boundary():
    pad = data.pad_to_buckets(BOUNDARIES, -1)
    found = pad([[1, 2], [3]])
    assert found.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1]]
    assert pad([np.ones((5, 2), np.float32)]).shape == (1, 8, 2)
    assert pad([weft.arange(4), weft.arange(0)]).shape == (2, 4)
    assert pickle.loads(pickle.dumps(pad))([[1]]).tolist() == [[1, -1, -1, -1]]


def test_padding_is_given_by_entry():
    words, labels, name = data.pad_to_buckets([2], (0, -100, None))([([1], [1], "a"), ([2, 3], [0, 1], "b")])
    assert (words.tolist(), labels.tolist(), name) == ([[1, 0], [2, 3]], [[1, -100], [0, 1]], ["a", "b"])
    found = data.pad_to_buckets([2], {"x": 0.5, "y": None})([{"x": weft.ones(1), "y": 3, "z": 1}])
    assert (found["x"].tolist(), found["y"].tolist(), set(found)) == ([[1, 0.5]], [3], {"x", "y"})


def test_few_lengths_are_few_programs(compilations):
    words = [list(range(1 + at % 12)) for at in range(48)]
    batches = data.BucketBatchSampler(list(map(len, words)), BOUNDARIES, 4, shuffle=True, drop_last=True)
    for batch in data.DataLoader(words, batch_sampler=batches, collate_fn=data.pad_to_buckets(BOUNDARIES)):
        (batch * 2).sum().item()
    assert len(compilations()) == len(BOUNDARIES)


REFUSED = [
    ("BucketBatchSampler([1], [2])", "give either batch_size or max_tokens"),
    ("BucketBatchSampler([1], [2], 1, max_tokens=2)", "give either batch_size or max_tokens"),
    ("BucketBatchSampler([1], [2, 2], 1)", r"boundaries should be positive and ascending, but got \[2, 2\]"),
    ("BucketBatchSampler([1], [], 1)", r"boundaries should be positive and ascending, but got \[\]"),
    (
        "BucketBatchSampler([3], [2], 1)",
        "a sample of length 3 fits no bucket: the last boundary is 2; add a larger one",
    ),
    (
        "BucketBatchSampler([1], [2], max_tokens=1)",
        "a batch should have room for a sample, but got batch_size=None, max",
    ),
    ("BucketBatchSampler([1], [2], 0)", "a batch should have room for a sample, but got batch_size=0"),
    ("pad_to_buckets([2])([[1, 2, 3]])", "a sample of length 3 fits no bucket: the last boundary is 2"),
    ("pad_to_buckets([0])", r"boundaries should be positive and ascending, but got \[0\]"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        eval(text, dict(vars(data)))


def test_entries_and_paddings_are_as_many():
    with pytest.raises(RuntimeError, match=r"^padding_value has 2 entries, but samples have 1$"):
        data.pad_to_buckets([2], (0, 0))([([1],)])
