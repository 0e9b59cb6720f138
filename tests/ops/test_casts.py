"""Floating numbers as integers, where they do not fit: as a CPU converts them, in both tiers."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch

NUMBERS = [260.1, -2.55, 300.0, -1.0, 3e9, -3e9, 1e19, -1e19, float("nan"), float("inf"), 127.6, 128.0, -129.0, 7e4]
LEAST = -(2**31)
BY_TYPE = {
    torch.uint8: [4, 254, 44, 255, 0, 0, 0, 0, 0, 0, 127, 128, 127, 112],
    torch.int8: [4, -2, 44, -1, 0, 0, 0, 0, 0, 0, 127, -128, 127, 112],
    torch.int16: [260, -2, 300, -1, 0, 0, 0, 0, 0, 0, 127, 128, -129, 4464],
    torch.uint16: [260, 65534, 300, 65535, 0, 0, 0, 0, 0, 0, 127, 128, 65407, 4464],
    torch.int32: [260, -2, 300, -1, *[LEAST] * 6, 127, 128, -129, 70000],
    torch.int64: [260, -2, 300, -1, 3 * 10**9, -3 * 10**9, *[-(2**63)] * 4, 127, 128, -129, 70000],
}
"""PyTorch's answers."""


@pytest.mark.parametrize("wanted", BY_TYPE)
@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_what_does_not_fit(source, wanted):
    x = torch.tensor(NUMBERS, dtype=torch.float64).to(source)
    assert x.to(wanted).tolist() == BY_TYPE[wanted]
    assert torch.zeros(len(NUMBERS), dtype=wanted).copy_(x).tolist() == BY_TYPE[wanted]


@pytest.mark.compiled
@pytest.mark.parametrize("wanted", BY_TYPE)
def test_what_does_not_fit_in_a_compiled_program(wanted):
    x = torch.tensor(NUMBERS, dtype=torch.float64)
    assert torch.compile(lambda x: x.to(wanted))(x).tolist() == BY_TYPE[wanted]


def test_half_types_and_large_unsigned_numbers():
    x = torch.tensor([-1.0, 300.0, 6e4, float("inf")], dtype=torch.float16)
    assert x.to(torch.int32).tolist() == [-1, 300, 60000, LEAST]
    assert x.to(torch.uint8).tolist() == [255, 44, 96, 0]
    assert torch.tensor([1e19, 5.0, -1.0], dtype=torch.float64).to(torch.uint64).tolist() == [10**19, 5, 2**64 - 1]
    assert torch.tensor([2.0**32 + 5, 3e9], dtype=torch.float64).to(torch.uint32).tolist() == [5, 3 * 10**9]


def test_pixels_wrap_around():
    image = (torch.tensor([1.02, -0.01]) * 255).byte()
    assert image.tolist() == [4, 254]
    assert image.numpy().dtype == np.uint8
