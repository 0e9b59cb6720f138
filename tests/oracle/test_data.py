"""Datasets, samplers and loaders next to PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, UserList, namedtuple
from itertools import product

import numpy as np
import pytest

from weft.utils import data

theirs = pytest.importorskip("torch.utils.data", reason="needs torch")

pytestmark = pytest.mark.oracle

Pair = namedtuple("Pair", "a b")


def outcome(make):
    """What comes out, as plain data; or the error's builtin type and its text."""
    try:
        return plain(make())
    except Exception as error:
        return [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"], str(error)


def plain(found):
    kind = type(found).__name__
    if hasattr(found, "tolist"):
        return kind, str(found.dtype).split(".")[-1], tuple(found.shape), found.tolist()
    if isinstance(found, dict):
        return kind, {key: plain(value) for key, value in found.items()}
    if isinstance(found, (list, tuple, UserList)):
        return kind, [plain(value) for value in found]
    return kind, found


SAMPLES = [
    [1, 2],
    [1.5, 2],
    [True, False],
    ["a", "b"],
    [b"a"],
    [(1, 2), (3, 4)],
    [[1, 2], [3, 4]],
    [Pair(1, "x")] * 2,
    [{"a": 1}, {"a": 2}],
    [OrderedDict(a=1)] * 2,
    [UserList([1, 2]), UserList([3, 4])],
    [range(2), range(2)],
    [np.float32(1), np.float32(2)],
    [np.int8(1)],
    [np.bool_(True)],
    [np.ones(2, np.float16)] * 2,
    [np.array(3)],
    [np.ones(2), np.ones(3)],
    [np.array(["a"])],
    [[1], [1, 2]],
    [(), ()],
    [{}, {}],
    [{"a": 1}, {"b": 1}],
    [((1, 2.0), "s"), ((3, 4.0), "t")],
    [np.str_("a")],
    [{1, 2}],
    [{"a": [1, (2, "x")]}] * 2,
    [np.zeros((0, 2))] * 2,
]


@pytest.mark.parametrize("batch", SAMPLES, ids=repr)
def test_batches_are_collated_and_converted_alike(batch):
    assert outcome(lambda: data.default_collate(batch)) == outcome(lambda: theirs.default_collate(batch))
    assert outcome(lambda: data.default_convert(batch)) == outcome(lambda: theirs.default_convert(batch))


def test_an_absent_sample_is_told_in_the_same_words_and_more():
    ours, theirs_said = outcome(lambda: data.default_collate([None])), outcome(lambda: theirs.default_collate([None]))
    assert ours[0] == theirs_said[0]
    assert ours[1].startswith(f"{theirs_said[1]}; sample 0 of the batch is None")


@pytest.mark.parametrize("drop_last", [True, False])
def test_replicas_get_the_same_shares(drop_last):
    for count, replicas in product(range(1, 25), range(1, 8)):
        for rank in range(replicas):
            options = {"num_replicas": replicas, "rank": rank, "shuffle": False, "drop_last": drop_last}
            ours, other = (lib.DistributedSampler(range(count), **options) for lib in (data, theirs))
            assert (list(ours), len(ours), ours.total_size) == (list(other), len(other), other.total_size)


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.1, 0.9], [0.3, 0.3, 0.4], [0.2] * 5], ids=str)
@pytest.mark.filterwarnings("ignore:Length of split")
def test_splits_have_the_same_sizes(shares):
    for count in range(1, 15):
        ours, other = ([len(part) for part in lib.random_split(range(count), shares)] for lib in (data, theirs))
        assert ours == other


OPTIONS = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"multiprocessing_context": "spawn"},
    {"num_workers": 1, "multiprocessing_context": "x"},
    {"num_workers": 1, "multiprocessing_context": 3},
    {"sampler": [0], "shuffle": True},
    {"batch_sampler": [[0]], "batch_size": 2},
    {"batch_size": 0},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 1.5},
    {"drop_last": 3},
    {"shuffle": True, "batch_size": -1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dataset", [[1, 2], []], ids=str)
def test_options_are_refused_in_the_same_words(dataset, options):
    ours, other = (
        outcome(lambda: data.DataLoader(dataset, **options)),
        outcome(lambda: theirs.DataLoader(dataset, **options)),
    )
    assert ours == other or ours[0] == other[0] == "DataLoader"


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_loaders_give_the_same_batches(size):
    for count, drop_last in product(range(6), (False, True)):
        made = [
            outcome(lambda lib=lib: list(lib.DataLoader(range(count), size, drop_last=drop_last)))  # noqa: B023
            for lib in (data, theirs)
        ]
        assert made[0] == made[1]
