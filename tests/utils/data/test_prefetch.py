"""Batches on their way to a device."""

from __future__ import annotations

import pytest

import weft
from tests.utils.data.test_collate import Pair
from weft.utils import data


def test_batches_come_in_order_and_some_are_fetched_ahead():
    asked = []

    def batches():
        for at in range(4):
            asked.append(at)
            yield {"x": weft.tensor([at]), "y": [Pair("a", weft.ones(1))]}

    ahead = iter(data.prefetch_to(batches(), "cpu", ahead=2))
    assert next(ahead)["x"].tolist() == [0]
    assert asked == [0, 1]
    rest = list(ahead)
    assert [batch["x"].item() for batch in rest] == [1, 2, 3]
    assert rest[0]["y"][0].y.device == weft.device("cpu")


def test_a_loader_can_be_read_again():
    ahead = data.prefetch_to(data.DataLoader(range(5), 2), weft.device("cpu"), ahead=9)
    assert [[x.tolist() for x in ahead] for _ in range(2)] == [[[0, 1], [2, 3], [4]]] * 2
    assert len(ahead) == 3
    assert list(data.prefetch_to([], "cpu")) == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"^prefetch_to: ahead should be a positive integer, but got ahead=0$"):
        data.prefetch_to([], "cpu", ahead=0)
    with pytest.raises(RuntimeError, match="nonsense"):
        data.prefetch_to([], "nonsense")
