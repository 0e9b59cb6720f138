"""Rates, conversion of nested structures, buckets, and tensors that share elements."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from weft.xla.core import xla_model as xm
from weft.xla.core.xla_model import CoalescingBuckets, RateTracker, ToXlaTensorArena

# --- rates ---


class Clock:
    now = 10.0

    def __call__(self):
        return self.now


def test_rates_are_smoothed(monkeypatch):
    clock = Clock()
    tracker = RateTracker(smooth_factor=0.25, clock=clock)
    assert tracker.rate() == tracker.global_rate() == 0.0
    tracker.add(10)
    tracker.add(10)
    clock.now += 2
    assert tracker.rate() == 10.0  # the first one as it is
    clock.now += 1
    tracker.add(30)
    assert tracker.rate() == 0.75 * 30 + 0.25 * 10
    assert tracker.rate() == 0.0  # no time has passed
    tracker.add(6)
    assert tracker.global_rate() == (20 + 30 + 6) / 3


def test_the_share_of_the_last_rate(monkeypatch):
    for value, share in (("", 0.4), ("0.5", 0.5)):
        monkeypatch.setenv("RATE_TRACKER_SMOOTHING", value)
        clock = Clock()
        tracker = RateTracker(clock=clock)
        for count in (10, 20):
            tracker.add(count)
            clock.now += 1
            rate = tracker.rate()
        assert rate == pytest.approx((1 - share) * 20 + share * 10)
    monkeypatch.setenv("RATE_TRACKER_SMOOTHING", "much")
    with pytest.raises(RuntimeError, match=r"^RATE_TRACKER_SMOOTHING=much: expected a number$"):
        RateTracker()


# --- conversion ---

Point = namedtuple("Point", "x y")


@dataclass
class Batch:
    number: int
    data: object


def doubled(structure, calls=None):
    def convert(numbers):
        if calls is not None:
            calls.append(list(numbers))
        return [2 * number for number in numbers]

    return ToXlaTensorArena(convert, lambda value: isinstance(value, float)).transform(structure)


def test_all_kinds_of_structures_are_converted_at_once():
    calls = []
    structure = {
        "a": [1.0, (2.0, "b", 3)],
        "c": Point(4.0, {5.0}),
        "d": Batch(7, OrderedDict(e=6.0)),
        "f": frozenset({8.0}),
    }
    found = doubled(structure, calls)
    assert calls == [[1.0, 2.0, 4.0, 5.0, 6.0, 8.0]]
    assert found == {
        "a": [2.0, (4.0, "b", 3)],
        "c": Point(8.0, {10.0}),
        "d": Batch(7, OrderedDict(e=12.0)),
        "f": {16.0},
    }
    assert type(found["c"]) is Point
    assert structure["a"] == [1.0, (2.0, "b", 3)]  # unchanged
    assert structure["d"].data == {"e": 6.0}


def test_nothing_to_convert():
    calls = []
    other = object()
    structure = [1, {"a": {2}}, other]
    found = doubled(structure, calls)
    assert calls == []
    assert found == structure
    assert found is not structure
    assert found[1] is not structure[1]
    assert found[2] is other


def test_what_occurs_twice_is_converted_once():
    number = 1.5
    inner = [number]
    calls = []
    first, second, third = doubled([inner, inner, number], calls)
    assert calls == [[1.5]]
    assert first is second
    assert third == 3.0


def test_a_structure_that_contains_itself():
    structure = [1.0]
    structure.append(structure)
    found = doubled(structure)
    assert found[0] == 2.0
    assert found[1] is found


def test_the_number_of_replacements_is_checked():
    with pytest.raises(AssertionError, match="one replacement for each"):
        ToXlaTensorArena(lambda found: [], lambda value: isinstance(value, float)).transform([1.0])


# --- buckets ---

KB = 1 / 1024  # in MB


def of_sizes(sizes):
    """Tensors of these sizes in KB."""
    return [torch.zeros(256 * size) for size in sizes]


def buckets_of(sizes, cap, outputs=None):
    """The buckets' sizes in KB, a list for each call with lists."""
    calls = []
    inputs = of_sizes(sizes)

    def function(given, out):
        is_list = isinstance(given, list)
        calls.append([x.nbytes >> 10 for x in given] if is_list else given.nbytes >> 10)
        assert (out is None) == (outputs is None)
        if outputs is not None:
            assert isinstance(out, list) == is_list
            assert all(o is outputs[at] for o in (out if is_list else [out]) for at, x in enumerate(outputs) if o is x)
        return list(given) if is_list else given

    results = CoalescingBuckets(function, inputs, outputs, bucket_cap_mb=cap * KB)()
    assert all(a is b for a, b in zip(results, inputs, strict=True))
    return calls


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([], []),
        ([1], [1]),
        ([4, 4, 2], [[4, 4, 2]]),
        ([4, 4, 4], [[4, 4], 4]),
        ([12], [12]),
        ([4, 12, 1], [[4, 12], 1]),  # too large alone, and little before it
        ([5, 12, 1], [5, 12, 1]),  # half a cap is not little
        ([4, 17], [4, 17]),  # more than twice the cap together
        ([10, 10], [10, 10]),
    ],
)
def test_buckets(sizes, calls):
    assert buckets_of(sizes, cap=10) == calls
    if sizes:
        assert buckets_of(sizes, cap=10, outputs=of_sizes(sizes)) == calls


@given(st.lists(st.integers(1, 30), max_size=20))
def test_buckets_hold_everything_in_order_and_are_not_too_large(sizes):
    calls = [call if isinstance(call, list) else [call] for call in buckets_of(sizes, cap=10)]
    assert [size for call in calls for size in call] == sizes
    assert all(len(call) == 1 or sum(call) <= 20 for call in calls)


def test_what_buckets_do_not_take():
    x = torch.ones(1)
    with pytest.raises(TypeError, match=r"^`input_list` needs to be a list of Tensors, but given <class 'tuple'>\.$"):
        CoalescingBuckets(print, (x,))
    with pytest.raises(TypeError, match=r"^`input_list` needs to be a list of Tensors, but given <class 'list'>\.$"):
        CoalescingBuckets(print, [1])
    with pytest.raises(TypeError, match=r"^`output_list` needs to be a list of Tensors, but given <class 'int'>\.$"):
        CoalescingBuckets(print, [x], 3)
    with pytest.raises(ValueError, match=r"^`output_list` length doesn't match `input_list` length: 2 vs 1\.$"):
        CoalescingBuckets(print, [x], [x, x])
    with pytest.raises(AssertionError, match="one result for each input"):
        CoalescingBuckets(lambda inputs, outputs: inputs[:1], [x, x])()


# --- shared elements ---


def test_tensors_that_share_elements():
    x, other = torch.ones(4, device="xla"), torch.ones(4)
    xm.check_view_sharing({"a": [x, x], "b": (other, other + 1), "c": x.clone(), "d": 3})
    for view in (x[1:3], x.detach(), x.view(2, 2)):
        with pytest.raises(
            RuntimeError,
            match=rf"^Tensor ID {id(view)} \(torch\.float32\[[\d, ]+\]\) is sharing a view with tensor ID {id(x)} "
            r"\(torch\.float32\[4\]\)$",
        ):
            xm.check_view_sharing([x, {"view": view}])
