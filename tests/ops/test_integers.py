"""Arithmetic of integers at the ends of their range."""

from __future__ import annotations

import pytest

import weft

LEAST = [(weft.int8, -128), (weft.int64, -(2**63))]


@pytest.mark.parametrize(("dtype", "least"), LEAST, ids=["int8", "int64"])
def test_common_divisors_of_the_least_integer(dtype, least):
    """It has no size; PyTorch's answers are these."""
    input, other = weft.tensor([[least, least, 0, least], [7, -1, least, least]], dtype=dtype)
    assert weft.gcd(input, other).tolist() == [1, 1, least, least]
    assert weft.lcm(input, other).tolist() == [least, least, 0, least]


def test_powers_wrap_around():
    bases, exponents = [2, 7, -7, 3, 1, -1, 0], [64, 2**63 - 1, 2**63 - 1, 70, 2**62, 2**63 - 1, 0]
    wanted = [
        (pow(base, exponent, 2**64) + 2**63) % 2**64 - 2**63 for base, exponent in zip(bases, exponents, strict=True)
    ]
    assert weft.pow(weft.tensor(bases), weft.tensor(exponents)).tolist() == wanted


def test_the_sign_of_nan_is_zero():
    assert weft.sign(weft.tensor([float("nan"), -0.0, -2.0, float("inf")])).tolist() == [0, 0, -1, 1]
