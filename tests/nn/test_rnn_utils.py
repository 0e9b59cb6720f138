"""Padded and packed sequences."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft
from weft.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

T = weft.tensor
Z = weft.zeros


def rows(*lengths):
    """Sequences of numbers that tell which sequence and step they belong to."""
    return [weft.arange(n) + 10 * at for at, n in enumerate(lengths, 1)]


def test_the_packed_layout():
    packed = pack_sequence(rows(2, 3, 1), enforce_sorted=False)
    assert packed.data.tolist() == [20, 10, 30, 21, 11, 22]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    data, batch_sizes, order, back = pack_sequence(rows(2, 2))
    assert (data.tolist(), batch_sizes.tolist(), order, back) == ([10, 20, 11, 21], [2, 2], None, None)
    assert PackedSequence._fields == ("data", "batch_sizes", "sorted_indices", "unsorted_indices")


@pytest.mark.parametrize(("lengths", "batch_first"), [([2, 3, 1], True), ([1, 3, 3], False), ([2], False)])
def test_packing_and_padding_are_inverse(lengths, batch_first):
    sequences = [[100 * at + step for step in range(n)] for at, n in enumerate(lengths, 1)]
    padded = np.array([s + [0] * (max(lengths) - len(s)) for s in sequences])
    padded = padded if batch_first else padded.T
    packed = pack_padded_sequence(T(padded), lengths, batch_first, enforce_sorted=False)
    order = sorted(sequences, key=len, reverse=True)
    assert packed.data.tolist() == [s[step] for step in range(max(lengths)) for s in order if step < len(s)]
    rebuilt = PackedSequence(packed.data, *packed[1:])  # which no longer knows its padded form
    found, found_lengths = pad_packed_sequence(rebuilt, batch_first)
    assert found.tolist() == padded.tolist()
    assert found_lengths.tolist() == lengths


def test_sequences_come_back_from_lists():
    sequences = rows(2, 3, 1)
    expected = [s.tolist() for s in sequences]
    packed = pack_sequence(sequences, enforce_sorted=False)
    assert [s.tolist() for s in unpack_sequence(packed)] == expected
    padded = pad_sequence(sequences)
    assert [s.tolist() for s in unpad_sequence(padded, T([2, 3, 1]))] == expected


def test_padding_has_a_value_a_side_and_a_length():
    assert pad_sequence(rows(1, 2)).tolist() == [[10, 20], [0, 21]]
    assert pad_sequence(rows(1, 2), True, 7.0).tolist() == [[10, 7], [20, 21]]
    assert pad_sequence(rows(1, 2), True, padding_side="left").tolist() == [[0, 10], [20, 21]]
    packed = pack_sequence(rows(2, 1))
    padded, lengths = pad_packed_sequence(packed, True, -1.0, total_length=3)
    assert padded.tolist() == [[10, 11, -1], [20, -1, -1]]
    assert lengths.tolist() == [2, 1]


def test_what_is_packed_stays_when_the_input_or_the_data_is_written():
    x = weft.ones(2, 1, 2)
    packed = pack_padded_sequence(x, [2])
    x.zero_()
    assert pad_packed_sequence(packed)[0].sum().item() == 4
    packed.data.mul_(3)
    assert pad_packed_sequence(packed)[0].sum().item() == 12


def test_gradients_pass_both_ways_and_miss_the_padding():
    x = weft.ones(3, 2, requires_grad=True)
    packed = pack_padded_sequence(x, [1, 2], enforce_sorted=False)
    (pad_packed_sequence(packed)[0].sum() + (packed.data * T([1.0, 2.0, 3.0])).sum()).backward()
    assert x.grad.tolist() == [[3.0, 2.0], [0.0, 4.0], [0.0, 0.0]]


def test_conversions_keep_the_sizes_and_orders():
    packed = pack_sequence([weft.ones(1), weft.ones(2)], enforce_sorted=False)
    double = packed.double()
    assert isinstance(double, PackedSequence)
    assert double.data.dtype is weft.float64
    assert double.batch_sizes.dtype is weft.int64
    assert double.sorted_indices.tolist() == [1, 0]
    assert packed.to("cpu") is packed
    assert packed.cpu() is packed
    names = ("half", "float", "long", "int", "short", "char", "byte")
    dtypes = (weft.float16, weft.float32, weft.int64, weft.int32, weft.int16, weft.int8, weft.uint8)
    assert tuple(getattr(packed, name)().data.dtype for name in names) == dtypes
    assert (packed.is_cuda, packed.is_pinned()) == (False, False)
    for twin in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed)), packed.pin_memory()):
        assert [t.tolist() for t in twin] == [t.tolist() for t in packed]
    assert packed._replace(data=Z(3)).data.tolist() == [0.0, 0.0, 0.0]


def test_a_pair_makes_a_packed_sequence():
    packed = PackedSequence((Z(3), T([2, 1])), sorted_indices=T([1, 0]))
    assert packed.batch_sizes.tolist() == [2, 1]
    assert packed.unsorted_indices.tolist() == [1, 0]
    assert invert_permutation(T([2, 0, 1])).tolist() == [1, 2, 0]
    assert invert_permutation(None) is None


REFUSED = [
    (
        lambda: pack_padded_sequence(Z(3, 2), [2, 0]),
        RuntimeError,
        "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
    ),
    (
        lambda: pack_sequence(rows(1, 2)),
        RuntimeError,
        "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
        "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do "
        "not need ONNX exportability.",
    ),
    (
        lambda: pack_padded_sequence(Z(3, 2), [2, 1, 1]),
        RuntimeError,
        "Expected `len(lengths)` to be equal to batch_size, but got 3 (batch_size=2)",
    ),
    (
        lambda: pack_padded_sequence(Z(3, 2), T([[2, 1]])),
        RuntimeError,
        "'lengths' argument should be a 1D CPU int64 tensor, but got 2D cpu Long tensor",
    ),
    (lambda: pack_padded_sequence(Z(0, 2), [1, 1]), RuntimeError, "Cannot pack empty tensors."),
    (
        lambda: pack_padded_sequence(Z(3), [1]),
        IndexError,
        "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
    ),
    (
        lambda: pad_packed_sequence(pack_sequence(rows(2)), total_length=1),
        ValueError,
        "Expected total_length to be at least the length of the longest sequence in input, but got total_length=1 and "
        "max sequence length being 2",
    ),
    (
        lambda: pad_sequence(3),
        RuntimeError,
        "pad_sequence: Expected iterable for input sequences, but got arg of type: <class 'int'>",
    ),
    (lambda: pad_sequence([]), RuntimeError, "received an empty list of sequences"),
    (
        lambda: pad_sequence([Z(1)], padding_side="middle"),
        RuntimeError,
        "Expected padding_side to be one of left or right, but got middle.",
    ),
    (lambda: pad_sequence([Z(1), 3]), TypeError, "expected Tensor as element 1 in argument 0, but got int"),
    (
        lambda: pad_sequence([Z(())]),
        RuntimeError,
        "pad_sequence: sequences must have at least 1 dimension, but element 0 has none",
    ),
    (
        lambda: pad_sequence([Z(2, 2), Z(3, 3)]),
        RuntimeError,
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
    ),
    (lambda: unpad_sequence(Z(3, 2), T([1])), ValueError, "zip() argument 2 is shorter than argument 1"),
    (lambda: PackedSequence(Z(3)), AssertionError, "Expected data to be a list or tuple of length 2"),
]


def test_a_length_beyond_the_steps_packs_what_there_is():
    packed = pack_padded_sequence(T([[1.0, 2.0], [3.0, 4.0]]), [3, 1])
    assert (packed.data.tolist(), packed.batch_sizes.tolist()) == ([1, 2, 3], [2, 1, 1])
    with pytest.raises(RuntimeError):
        pad_packed_sequence(packed)[0].tolist()


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text[:40] for *_, text in REFUSED])
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_lengths_may_be_tensors_of_any_integer_type():
    x = np.arange(4.0).reshape(2, 2)
    packed = pack_padded_sequence(T(x), T([2, 1], dtype=weft.int32))
    assert packed.data.tolist() == [0.0, 1.0, 2.0]
    assert packed.batch_sizes.dtype is weft.int64


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_data_compiles_nothing_and_is_that_of_results(side, compilations):
    data = [weft.arange(float(n)).view(n, 1) + 1 for n in (3, 1, 2)]
    for sequence in data:
        sequence.tolist()
    compilations()
    padded = pad_sequence(data, padding_value=-1.0, padding_side=side)
    assert padded.shape == (3, 3, 1)
    found = padded.tolist()
    assert not compilations()
    pending = pad_sequence([x * 1 for x in data], padding_value=-1.0, padding_side=side)
    assert pending.tolist() == found
    leaves = [x.requires_grad_() for x in data]
    pad_sequence(leaves).sum().backward()
    assert leaves[1].grad.tolist() == [[1]]
