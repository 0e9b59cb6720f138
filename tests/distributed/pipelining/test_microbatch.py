"""Batches as microbatches, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft as torch
from weft.distributed.pipelining import TensorChunkSpec
from weft.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1))
def test_what_is_divided_can_be_put_together(size, count, dim):
    x, y = torch.arange(size * size).reshape(size, size), torch.arange(size)
    specs = (TensorChunkSpec(dim), TensorChunkSpec(0), None)
    args, kwargs = split_args_kwargs_into_chunks((x, {"y": [y], "n": 3}, y), {"x": x}, count, specs)
    assert len(args) == len(kwargs) == min(size, count)
    assert [part.shape[dim] for part, _, _ in args] == [p.shape[dim] for p in x.tensor_split(min(size, count), dim)]
    assert all(same is y for _, _, same in args)
    merged = merge_chunks([part[:2] for part in args], specs[:2])
    assert torch.equal(merged[0], x)
    assert torch.equal(merged[1]["y"][0], y)
    assert merged[1]["n"] == 3
    assert torch.equal(merge_chunks(kwargs, None)["x"], x)


def test_arguments_without_tensors():
    assert split_args_kwargs_into_chunks((), None, 2) == ([(), ()], [{}, {}])
    assert split_args_kwargs_into_chunks((1, None), {"a": "b"}, 2) == ([(1, None)] * 2, [{"a": "b"}] * 2)


def test_specs():
    assert TensorChunkSpec.from_tuple((0, 1)) == (TensorChunkSpec(0), TensorChunkSpec(1))
    assert TensorChunkSpec.from_dict({"a": 1}) == {"a": TensorChunkSpec(1)}
    assert repr(TensorChunkSpec(1)) == "TensorChunkSpec(1)"
    assert len({TensorChunkSpec(1), TensorChunkSpec(1)}) == 1


def test_bad_specs():
    x = torch.ones(4)
    with pytest.raises(
        AssertionError, match=r"^args_chunk_spec must have an entry for each of the 1 positional arguments"
    ):
        split_args_kwargs_into_chunks((x,), None, 2, ())
    with pytest.raises(AssertionError, match=r"must have the keys of the keyword arguments, \['a'\], but has \['b'\]$"):
        split_args_kwargs_into_chunks((), {"a": x}, 2, None, {"b": None})
    with pytest.raises(
        ValueError, match=r"^Chunk \(tensor\(.*\),\) did not match chunk spec \(TensorChunkSpec\(0\), None\)"
    ):
        merge_chunks([(x,), (x,)], (TensorChunkSpec(0), None))
    with pytest.raises(AssertionError, match=r"^results without a dim along which to put them together must be equal"):
        merge_chunks([1, 2], None)
    assert torch.equal(merge_chunks([x, x.clone()], [None][0]), torch.ones(8))
    assert merge_chunks([(x, 1), (x.clone(), 1)], (None, None))[1] == 1
