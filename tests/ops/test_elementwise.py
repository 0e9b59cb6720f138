"""Values at the edges of types, where a body that computes in a wider type would see another edge."""

from __future__ import annotations

import math

import pytest

import weft


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32, weft.float64])
def test_infinities_become_the_largest_numbers_of_their_type(dtype):
    largest = weft.finfo(dtype).max
    x = weft.tensor([math.inf, -math.inf, math.nan], dtype=dtype)
    assert x.nan_to_num().tolist() == [largest, -largest, 0]
    assert (x + 0).nan_to_num(nan=2.0, posinf=1.0).tolist() == [1, -largest, 2]
