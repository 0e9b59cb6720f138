"""`out=`: which type a result has that goes into a tensor, and the shape that the tensor has then."""

from __future__ import annotations

import pytest

import weft


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda out: weft.zeros(2, out=out), [0, 0]),
        (lambda out: weft.full((2,), 1.5, out=out), [1, 1]),
        (lambda out: weft.arange(2.0, out=out), [0, 1]),
        (lambda out: weft.linspace(0, 1, 2, out=out), [0, 1]),
        (lambda out: weft.cumsum(weft.full((2,), 0.6), 0, out=out), [0, 0]),
        (lambda out: weft.add(weft.ones(2, dtype=weft.int32), 1, out=out), [2, 2]),
    ],
)
def test_out_decides_the_type(made, expected):
    out = weft.empty(2, dtype=weft.int64)
    assert made(out) is out
    assert out.dtype is weft.int64
    assert out.tolist() == expected


def test_sequences_keep_the_shape_of_out():
    assert weft.arange(4, out=weft.zeros(2, 2)).tolist() == [[0, 1], [2, 3]]
    with pytest.warns(UserWarning, match=r"^The number of elements in the out tensor of shape \[5\] is 5 which does"):
        assert weft.arange(3, out=weft.zeros(5)).tolist() == [0, 1, 2]


def test_factories_resize_out_quietly():
    assert weft.zeros(2, out=weft.ones(3)).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["zeros_like", "rand_like"])
def test_what_takes_its_type_from_a_tensor_has_no_out(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        getattr(weft, name)(weft.ones(2), out=weft.ones(2))


def test_normal_numbers_have_the_type_of_the_mean():
    for mean, std in ((weft.float16, weft.float32), (weft.float32, weft.float64)):
        assert weft.normal(weft.zeros(2, dtype=mean), weft.ones(2, dtype=std)).dtype is mean
    assert weft.normal(0.0, weft.ones(2, dtype=weft.float64)).dtype is weft.float64


def test_numbers_that_a_type_leaves_out_are_warned_of():
    with pytest.warns(UserWarning, match=r"^to - 1 is out of bounds \[-\(2\^24\), 2\^24\]\. Due to precision limit"):
        weft.empty(2).random_(0, 2**26)
