"""The public spellings that are derived from rows: keywords, `out=`, in-place forms, mixed operands."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def test_numpys_names_of_dim_and_keepdim_are_taken_too():
    x = weft.arange(6.0).reshape(2, 3)
    assert weft.equal(x.sum(axis=0), x.sum(0))
    assert weft.mean(x, axis=1, keepdims=True).shape == (2, 1)
    assert weft.cat([x, x], axis=1).shape == (2, 6)


def test_out_receives_the_result():
    x, out = weft.tensor([1.0, 4.0]), weft.zeros(2)
    assert weft.sqrt(x, out=out) is out
    assert out.tolist() == [1.0, 2.0]
    assert weft.add(x, x, alpha=2, out=out).tolist() == [3.0, 12.0]


def test_out_must_not_take_part_in_gradients():
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        weft.sqrt(weft.ones(2, requires_grad=True), out=weft.zeros(2))


@pytest.mark.parametrize("other", [2, 2.0, np.float32(2), np.array([2.0, 2.0])], ids=repr)
def test_operators_take_numbers_and_arrays_on_either_side(other):
    x = weft.tensor([1.0, 4.0], dtype=weft.float64)
    assert (x * other).tolist() == [2.0, 8.0]
    assert (other * x).tolist() == [2.0, 8.0]


def test_an_operand_that_is_none_is_a_type_error():
    with pytest.raises(TypeError, match="unsupported operand"):
        weft.ones(2) + None


def test_in_place_operators_keep_the_handle():
    x = same = weft.ones(2)
    x += 1
    x *= weft.tensor([2.0, 3.0])
    assert x is same
    assert same.tolist() == [4.0, 6.0]


def test_several_outputs_have_names():
    found = weft.tensor([[1.0, 3.0, 2.0]]).sort(dim=1)
    assert found.values.tolist() == [[1.0, 2.0, 3.0]]
    assert found.indices.tolist() == [[0, 2, 1]]
    assert repr(found).startswith("torch.return_types.sort(\nvalues=tensor(")
