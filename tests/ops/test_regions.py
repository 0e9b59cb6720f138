"""Operators on regions of images, compared with loops over elements."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import weft

weft.ops.load_library("torchvision/_C.so")
OPS = weft.ops.torchvision
# The interpreter and XLA add in different orders.
gradcheck, gradgradcheck = (
    partial(check, nondet_tol=1e-12) for check in (weft.autograd.gradcheck, weft.autograd.gradgradcheck)
)

ROIS = np.array(
    [[0, 0, 0, 4, 4], [1, 1.3, 1.7, 5, 5], [0, -3, -2, 12, 9], [1, 2.5, 2.5, 2.6, 2.6], [0, 5.2, 3.1, 9, 8]]
)
SIZE = (2, 4, 5, 6)
IMAGES = np.random.default_rng(0).normal(size=SIZE)


def tensors(*arrays):
    return [weft.tensor(array, requires_grad=at == 0) for at, array in enumerate(arrays)]


def pixel(plane, y, x):
    """Bilinear, within a pixel around the plane."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low_y, low_x = int(y), int(x)
    high_y, high_x = min(low_y + 1, height - 1), min(low_x + 1, width - 1)
    part_y, part_x = y - low_y, x - low_x
    upper = plane[low_y, low_x] * (1 - part_x) + plane[low_y, high_x] * part_x
    lower = plane[high_y, low_x] * (1 - part_x) + plane[high_y, high_x] * part_x
    return upper * (1 - part_y) + lower * part_y


def interpolated(scale, rows, columns, ratio, aligned, *, own):
    """`roi_align` or, if bins have channels of their `own`, `ps_roi_align`."""
    channels = SIZE[1] // (rows * columns if own else 1)
    out = np.zeros((len(ROIS), channels, rows, columns))
    for k, c, i, j in np.ndindex(out.shape):
        x1, y1, x2, y2 = ROIS[k, 1:] * scale - (0.5 if aligned else 0)
        height, width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
        high, wide = (ratio, ratio) if ratio > 0 else (math.ceil(height / rows), math.ceil(width / columns))
        plane = IMAGES[int(ROIS[k, 0]), (c * rows + i) * columns + j if own else c]
        out[k, c, i, j] = np.mean(
            [
                pixel(
                    plane,
                    y1 + i * height / rows + (s + 0.5) * height / rows / high,
                    x1 + j * width / columns + (t + 0.5) * width / columns / wide,
                )
                for s in range(high)
                for t in range(wide)
            ]
        )
    return out


def nearest(x):
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def pixels_of(k, bin_, rows, scale, axis, *, own):
    """The pixels of a bin along an axis."""
    start, stop = nearest(ROIS[k, 2 - axis] * scale), nearest(ROIS[k, 4 - axis] * scale)
    size = max(stop - start + (0 if own else 1), 1) / rows
    last = SIZE[2 + axis] - (1 if own else 0)
    ends = (math.floor(bin_ * size) + start, math.ceil((bin_ + 1) * size) + start)
    return range(*(min(max(end, 0), last) for end in ends))


def pooled(scale, rows, columns, *, own):
    """Values and places of `roi_pool` or, if bins have channels of their `own`, values of `ps_roi_pool`."""
    out = np.zeros((len(ROIS), SIZE[1] // (rows * columns if own else 1), rows, columns))
    places = np.full(out.shape, -1)
    for k, c, i, j in np.ndindex(out.shape):
        plane = IMAGES[int(ROIS[k, 0]), (c * rows + i) * columns + j if own else c]
        ys, xs = pixels_of(k, i, rows, scale, 0, own=own), pixels_of(k, j, columns, scale, 1, own=own)
        found = {(y, x): plane[y, x] for y in ys for x in xs}
        if found and own:
            out[k, c, i, j] = np.mean(list(found.values()))
        elif found:
            y, x = max(found, key=lambda at: found[at])
            out[k, c, i, j], places[k, c, i, j] = plane[y, x], y * SIZE[3] + x
    return out, places


@pytest.mark.parametrize("ratio", [2, 0, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_the_mean_of_samples_between_pixels(ratio, aligned):
    images, rois = tensors(IMAGES, ROIS)
    found = OPS.roi_align(images, rois, 0.7, 3, 2, ratio, aligned)
    np.testing.assert_allclose(found.detach().numpy(), interpolated(0.7, 3, 2, ratio, aligned, own=False), atol=1e-12)
    assert gradcheck(lambda x: OPS.roi_align(x, rois, 0.7, 3, 2, ratio, aligned), (images,))


@pytest.mark.parametrize("ratio", [2, 0])
def test_bins_with_channels_of_their_own(ratio):
    images, rois = tensors(IMAGES, ROIS[:3])
    found, channels = OPS.ps_roi_align(images, rois, 0.7, 2, 2, ratio)
    wanted = interpolated(0.7, 2, 2, ratio, True, own=True)[:3]
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-12)
    assert channels.dtype is weft.int32
    assert channels[0, 0].tolist() == [[0, 1], [2, 3]]
    assert gradcheck(lambda x: OPS.ps_roi_align(x, rois, 0.7, 2, 2, ratio)[0], (images,))


def test_the_largest_pixels():
    images, rois = tensors(IMAGES, ROIS)
    found, places = OPS.roi_pool(images, rois, 0.7, 2, 3)
    wanted, at = pooled(0.7, 2, 3, own=False)
    np.testing.assert_array_equal(found.detach().numpy(), wanted)
    np.testing.assert_array_equal(places.numpy(), at)
    assert gradcheck(lambda x: OPS.roi_pool(x, rois, 0.7, 2, 3)[0], (images,))


def test_the_mean_of_pixels():
    images, rois = tensors(IMAGES, ROIS)
    found = OPS.ps_roi_pool(images, rois, 0.7, 2, 2)[0]
    np.testing.assert_allclose(found.detach().numpy(), pooled(0.7, 2, 2, own=True)[0], atol=1e-12)
    # In torchvision it is not the derivative: it takes pixels into account that the mean leaves out.
    assert gradcheck(lambda x: OPS.ps_roi_pool(x, rois, 0.7, 2, 2)[0], (images,))


@pytest.mark.parametrize("ratio", [2, 0])
def test_further_derivatives(ratio):
    images, rois = tensors(IMAGES[:, :1], ROIS[:2])
    assert gradgradcheck(lambda x: OPS.roi_align(x, rois, 0.7, 1, 2, ratio, True) ** 2, (images,))
    assert gradcheck(lambda x: OPS.roi_align(x, rois, 0.7, 1, 2, ratio, True), (images,), check_forward_ad=True)


def test_derivatives_by_name():
    images, rois = tensors(IMAGES, ROIS)
    pools = {
        "roi_align": ((0.7, 2, 2), (0, True), 0),
        "ps_roi_align": ((0.7, 2, 2), (2,), 1),
        "roi_pool": ((0.7, 2, 2), (), 1),
        "ps_roi_pool": ((0.7, 2, 2), (), 1),
    }
    for name, (shared, more, extra) in pools.items():
        out = getattr(OPS, name)(images, rois, *shared, *more)
        first, *rest = out if isinstance(out, tuple) else (out,)
        (wanted,) = weft.autograd.grad(first.sum(), images)
        order = (*more, *SIZE) if name == "ps_roi_align" else (*SIZE, *more)
        found = getattr(OPS, f"_{name}_backward")(weft.ones_like(first), rois, *rest[:extra], *shared, *order)
        assert weft.allclose(found, wanted), name


def test_no_regions_and_regions_beside_the_image():
    images = weft.tensor(IMAGES)
    none = weft.zeros(0, 5, dtype=weft.float64)
    assert OPS.roi_align(images, none, 1.0, 2, 2, 0, False).shape == (0, 4, 2, 2)
    assert OPS.roi_align(images[:0], none, 1.0, 2, 2, 2, False).shape == (0, 4, 2, 2)
    assert OPS.ps_roi_pool(images[:0], none, 1.0, 2, 2)[0].shape == (0, 1, 2, 2)
    values, places = OPS.roi_pool(images, weft.tensor([[0, 90.0, 90, 99, 99]], dtype=weft.float64), 1.0, 1, 1)
    assert (values.tolist(), places.tolist()) == ([[[[0.0]]] * 4], [[[[-1]]] * 4])


@pytest.mark.parametrize("kind", [weft.float16, weft.bfloat16])
def test_16_bit_floats_are_rounded_once_and_meet_wider_regions(kind):
    images, rois = weft.tensor(IMAGES).to(kind), weft.tensor(ROIS).float()
    found = OPS.roi_align(images, rois, 0.7, 2, 2, 2, True)
    assert found.dtype is kind
    assert weft.equal(found, OPS.roi_align(images.float(), rois, 0.7, 2, 2, 2, True).to(kind))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x, r: OPS.roi_align(x[0], r, 1.0, 2, 2, 2, True), RuntimeError, "input must have 4 dims"),
        (lambda x, r: OPS.roi_pool(x, r[:, 1:], 1.0, 2, 2), RuntimeError, r"rois must have shape as Tensor\[K, 5\]"),
        (lambda x, r: OPS.roi_pool(x, r.float(), 1.0, 2, 2), RuntimeError, "input should have the same type as rois"),
        (lambda x, r: OPS.roi_pool(x.long(), r.long(), 1.0, 2, 2), RuntimeError, "not implemented for 'Long'"),
        (lambda x, r: OPS.ps_roi_pool(x, r, 1.0, 3, 1), RuntimeError, "must be a multiple of pooling height"),
        (lambda x, r: OPS.roi_align(x[:1], r, 1.0, 2, 2, 2, True).sum().item(), IndexError, "a batch of 1 images"),
    ],
)
def test_what_does_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call(weft.tensor(IMAGES), weft.tensor(ROIS))
