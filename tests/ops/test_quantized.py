"""Numbers on grids of integers, and products of such integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft._tensor.codegen import op
from weft.errors import OutOfRangeError, ShapeError

SCALES = st.floats(2**-10, 10, width=32)
ZEROS = st.integers(0, 255)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9), SCALES, ZEROS)
def test_quantizing_takes_the_nearest_level(numbers, scale, zero):
    x = weft.tensor(numbers)
    levels = weft.quantize_per_tensor(x, scale, zero, weft.quint8).int_repr().numpy()
    inverse = np.float32(1) / np.float32(scale)
    expected = np.clip(np.round(np.array(numbers, np.float32) * inverse + np.float32(zero)), 0, 255)
    np.testing.assert_array_equal(levels, expected.astype(np.uint8))


@given(SCALES, ZEROS)
def test_numbers_on_the_grid_stay(scale, zero):
    levels = weft.arange(256).to(weft.uint8)
    x = weft._make_per_tensor_quantized_tensor(levels, scale, zero)
    again = weft.quantize_per_tensor(x.dequantize(), scale, zero, weft.quint8)
    assert weft.equal(again.int_repr(), levels)
    rounded = weft.fake_quantize_per_tensor_affine(x.dequantize(), scale, zero, 0, 255)
    assert weft.equal(rounded, x.dequantize())


def test_ties_are_even_after_the_zero_point_and_before_it():
    x = weft.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300])
    assert weft.quantize_per_tensor(x, 1.0, 1, weft.quint8).int_repr().tolist() == [2, 2, 4, 0, 0, 255, 0]
    assert weft.fake_quantize_per_tensor_affine(x, 1.0, 1, 0, 255).tolist() == [0, 2, 2, 0, -1, 254, -1]


def test_int32_has_the_ends_of_its_range():
    x = weft.tensor([3e9, -3e9, 1.0])
    assert weft.quantize_per_tensor(x, 1.0, 0, weft.qint32).int_repr().tolist() == [2**31 - 1, -(2**31), 1]


def test_gradients_pass_within_the_levels():
    x = weft.tensor([-0.6, -0.5, 0.0, 1.0, 1.04, 1.06]).requires_grad_()
    y = weft.fake_quantize_per_tensor_affine(x, 0.1, 5, 0, 15)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 1, 1, 0]
    assert weft.fake_quantize_per_tensor_affine(weft.tensor([weft.nan]), 0.1, 5, 0, 15).item() == pytest.approx(-0.5)


def test_gradients_pass_within_the_levels_of_each_channel():
    x = weft.full((2, 3), 0.5).requires_grad_()
    scale, zero = weft.tensor([0.1, 0.01]), weft.tensor([0, 0], dtype=weft.int32)
    (weft.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2] * 3, [0] * 3]


@pytest.mark.parametrize(
    ("zero", "low", "high", "text"),
    [
        (50, 0, 15, r"`zero_point` must be between `quant_min` and `quant_max`, but got 50"),
        (5, 20, 15, r"`quant_min` should be less than or equal to `quant_max`, but they are 20 and 15"),
    ],
)
def test_levels_that_make_no_grid(zero, low, high, text):
    with pytest.raises(OutOfRangeError, match=text):
        weft.fake_quantize_per_tensor_affine(weft.ones(2), 0.1, zero, low, high)


def test_types_without_a_grid():
    with pytest.raises(NotImplementedError, match=r"fake_quantize.* not implemented for 'Long'"):
        weft.fake_quantize_per_tensor_affine(weft.arange(2), 0.1, 0, 0, 15)
    with pytest.raises(
        RuntimeError, match="dimensions of scale and the input's dim 0 do not match: expected 2 entries"
    ):
        weft.fake_quantize_per_channel_affine(weft.ones(2, 3), weft.ones(3), weft.zeros(3).int(), 0, 0, 15)


# --- products -----------------------------------------------------------------------------------------------------


def extremes(rng, *size):
    """Integers of 8 bits, most of them at the ends, where sums are largest."""
    return rng.choice([0, 1, 128, 254, 255], size=size, p=[0.1, 0.1, 0.1, 0.1, 0.6])


@pytest.mark.parametrize("inputs", [1, 258, 515, 1500])
@pytest.mark.parametrize("zero", [None, [0, 127]])
def test_sums_of_products_are_exact(inputs, zero):
    rng = np.random.default_rng(inputs)
    x, w = extremes(rng, 3, inputs).astype(np.uint8), (extremes(rng, 2, inputs) - 128).astype(np.int8)
    shift = np.zeros(2, int) if zero is None else np.array(zero)
    expected = (x.astype(int) - 3) @ (w.astype(int) - shift[:, None]).T
    weight_zero = None if zero is None else weft.tensor(zero)
    y = op.integer_linear(weft.tensor(x), weft.tensor(w), weft.tensor(3), weight_zero)
    assert y.dtype is weft.int32
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize(("channels", "groups", "kernel"), [(4, 2, 3), (70, 1, 3), (2, 1, 24)])
def test_convolutions_are_exact(channels, groups, kernel):
    rng = np.random.default_rng(channels)
    x = extremes(rng, 1, channels, kernel + 1, kernel).astype(np.uint8)
    w = (extremes(rng, 2, channels // groups, kernel, kernel) - 128).astype(np.int8)
    y = op.integer_conv(weft.tensor(x), weft.tensor(w), weft.tensor(0), None, 1, 0, 1, groups)
    parts = np.split(x.astype(int), groups, 1)
    for at, out in enumerate(y.numpy()[0]):
        part = parts[at * groups // 2][0]
        expected = [(part[:, row : row + kernel] * w[at].astype(int)).sum() for row in range(2)]
        assert out.ravel().tolist() == expected


def test_sizes_that_do_not_fit():
    x, w, zero = weft.ones(2, 3).to(weft.uint8), weft.ones(2, 4).to(weft.int8), weft.tensor(0)
    with pytest.raises(ShapeError, match="the last dim of the input, of size 3, must have the weight's 4 inputs"):
        op.integer_linear(x, w, zero)
    with pytest.raises(ShapeError, match=r"expected input\[1, 2, 3\] to have 4 channels, but got 2 channels instead"):
        op.integer_conv(x[None], w[:, :, None], zero, None, 1, 0, 1, 1)


def test_unsigned_weights_are_exact():
    x, w = np.full((1, 600), 255, np.uint8), np.full((1, 600), 255, np.uint8)
    x[0, 0] = 254
    y = op.integer_linear(weft.tensor(x), weft.tensor(w), weft.tensor(0), None)
    assert y.item() == (x.astype(int) @ w.astype(int).T).item()
