"""Samples into batches, by type."""

from __future__ import annotations

import re
from collections import OrderedDict, UserDict, namedtuple
from types import MappingProxyType

import numpy as np
import pytest

import weft
from weft.utils import data

Pair = namedtuple("Pair", "x y")


def test_samples_are_collated_by_entry():
    found = data.default_collate([Pair(1, {"a": 1.5, "b": "s"}), Pair(2, {"a": 2.5, "b": "t"})])
    assert found.x.tolist() == [1, 2]
    assert found.y["a"].tolist() == [1.5, 2.5]
    assert (found.y["a"].dtype, found.x.dtype, found.y["b"]) == (weft.float64, weft.int64, ["s", "t"])
    assert data.default_collate([True, False]).dtype is weft.bool
    assert data.default_collate([weft.ones(2), weft.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert data.default_collate([("a", b"b"), ("c", b"d")]) == [("a", "c"), (b"b", b"d")]
    assert [x.tolist() for x in data.default_collate([(1, 2.0), (3, 4.0)])] == [[1, 3], [2.0, 4.0]]


def test_arrays_are_stacked():
    assert data.default_collate([np.ones(1, np.float32)] * 2).dtype is weft.float32
    assert data.default_collate([np.float32(1)] * 2).dtype is weft.float32
    assert data.default_collate([np.full((2, 1), True)] * 3).shape == (3, 2, 1)
    mixed = data.default_collate([np.ones(1, np.float32), np.ones(1, np.float64)])
    assert mixed.dtype is weft.float64
    assert data.default_collate([np.zeros((0, 3))] * 2).shape == (2, 0, 3)


def test_containers_keep_their_type():
    ordered = data.default_collate([OrderedDict(a=1), OrderedDict(a=2)])
    assert (type(ordered), ordered["a"].tolist()) == (OrderedDict, [1, 2])
    assert type(data.default_collate([UserDict(a=1)])) is UserDict
    assert type(data.default_collate([MappingProxyType({"a": 1})])) is MappingProxyType
    assert type(data.default_collate([[1], [2]])) is list
    assert type(data.default_collate([range(2), range(2)])) is list
    sample = [1]
    data.default_collate([sample, sample])
    assert sample == [1]


def test_rules_are_found_by_type_then_by_base(monkeypatch):
    def total(batch, *, collate_fn_map):
        return sum(batch)

    class Number(float):
        pass

    assert data.collate([1.5, 2.5], collate_fn_map={float: total}) == 4
    assert data.collate([(Number(1),), (Number(2),)], collate_fn_map={(int, float): total}) == [3]
    assert data.collate([[1], [2]], collate_fn_map={int: total, list: lambda batch, collate_fn_map: "lists"}) == "lists"
    monkeypatch.setitem(data.default_collate_fn_map, Number, total)
    assert data.default_collate([Number(1), Number(2)]) == 3


def test_what_is_not_batched_is_converted():
    converted = data.default_convert(Pair([np.ones(1)], {"a": np.float32(1)}))
    assert isinstance(converted.x[0], weft.Tensor)
    assert (converted.y["a"].dtype, converted.y["a"].shape) == (weft.float32, ())
    assert data.default_convert(("text", b"bytes", 1, None)) == ["text", b"bytes", 1, None]
    words = np.array(["text"])
    assert data.default_convert(words) is words


REFUSED = [
    ("default_collate([[1], [1, 2]])", RuntimeError, "each element in list of batch should be of equal size"),
    (
        "default_collate([object()])",
        TypeError,
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'object'>",
    ),
    (
        "default_collate([np.array(['a'])])",
        TypeError,
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <U1",
    ),
    ("collate([1])", TypeError, "default_collate: batch must contain .* found <class 'int'>"),
    ("default_collate([np.ones(2), np.ones(3)])", RuntimeError, "stack expects each tensor to be equal size"),
]


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused(text, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        eval(text, vars(data) | {"np": np})


NONE = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'NoneType'>; "
FILTER = (
    "leave such samples out of the dataset, or give the DataLoader a collate_fn that returns "
    "default_collate([x for x in batch if x is not None])"
)
OWN = "give it a value, or give the DataLoader a collate_fn of your own"
ABSENT = [
    ([None, 1], TypeError, f"sample 0 of the batch{{}} is None: {FILTER}"),
    ([1, None], RuntimeError, f"sample 1 of the batch{{}} is None: {FILTER}"),
    ([weft.ones(1), None], TypeError, f"sample 1 of the batch{{}} is None: {FILTER}"),
    ([np.ones(1), None], TypeError, f"sample 1 of the batch{{}} is None: {FILTER}"),
    ([(1, 2), None], TypeError, f"sample 1 of the batch{{}} is None: {FILTER}"),
    ([(1, 2), (3, None)], RuntimeError, f"entry [1] of sample 1 of the batch{{}} is None: {OWN}"),
    ([{"a": 1, "b": [None]}], TypeError, f"entry ['b'][0] of sample 0 of the batch{{}} is None: {OWN}"),
]


@pytest.mark.parametrize(("samples", "kind", "text"), ABSENT, ids=[repr(case[0]) for case in ABSENT])
def test_a_sample_that_is_none_is_named(samples, kind, text):
    with pytest.raises(kind, match=f"^{re.escape(NONE + text.format(''))}$"):
        data.default_collate(samples)
    dataset = {7 - place: sample for place, sample in enumerate(samples)}
    at = 7 - int(text[text.index("sample ") + 7])
    loader = data.DataLoader(dataset, batch_size=2, sampler=list(dataset))
    with pytest.raises(kind, match=f"^{re.escape(NONE + text.format(f', at dataset index {at},'))}$"):
        next(iter(loader))


def test_none_is_collated_where_there_is_a_rule(monkeypatch):
    monkeypatch.setitem(data.default_collate_fn_map, type(None), lambda batch, *, collate_fn_map: len(batch))
    assert data.default_collate([None, None]) == 2
    with pytest.raises(TypeError, match=r"^default_collate: .* found <class 'object'>$"):
        data.default_collate([(None, object())])


def test_a_batch_that_is_no_sequence_fails_by_itself():
    with pytest.raises(TypeError, match=r"^'generator' object is not subscriptable$"):
        data.default_collate(x for x in [None])


def test_nested_tensors_are_refused():
    with pytest.raises(RuntimeError, match="Batches of nested tensors are not currently supported by the default"):
        data.default_collate([weft.nested.nested_tensor([weft.ones(2)])] * 2)
