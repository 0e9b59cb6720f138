"""Deformable convolutions, compared with loops over elements."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

import weft

weft.ops.load_library("torchvision/_C.so")
CONVOLVE = weft.ops.torchvision.deform_conv2d
gradcheck = partial(weft.autograd.gradcheck, nondet_tol=1e-12, atol=1e-4)

CASES = [
    # sizes of the input, outputs, kernel, stride, padding, dilation, groups, offset groups
    ((2, 4, 4, 5), 2, (3, 2), (1, 1), (1, 1), (1, 1), 1, 1),
    ((1, 4, 5, 5), 4, (2, 2), (2, 1), (0, 1), (1, 2), 2, 1),
    ((1, 6, 3, 3), 2, (1, 2), (1, 2), (1, 0), (2, 1), 2, 3),
]


def arrays_of(case, *, masked=True):
    size, outputs, kernel, stride, pad, dilation, groups, offset_groups = case
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size[2:], kernel, stride, pad, dilation, strict=True)
    ]
    draw = np.random.default_rng(1).normal
    places = offset_groups * kernel[0] * kernel[1]
    arrays = [
        draw(size=size),
        draw(size=(outputs, size[1] // groups, *kernel)),
        draw(size=(size[0], 2 * places, *out)),
        draw(size=(size[0], places, *out)) if masked else np.zeros((size[0], 1)),
        draw(size=outputs),
    ]
    return arrays, (*stride, *pad, *dilation, groups, offset_groups, masked)


def pixel(plane, y, x):
    """Bilinear, with zeros around the plane."""
    low = np.floor([y, x]).astype(int)
    total = 0.0
    for at in itertools.product(*((n, n + 1) for n in low)):
        if all(0 <= a < size for a, size in zip(at, plane.shape, strict=True)):
            total += plane[at] * (1 - abs(y - at[0])) * (1 - abs(x - at[1]))
    return total


def convolved(arrays, how):
    images, weight, offset, mask, bias = arrays
    stride, pad, dilation, (groups, offset_groups), use_mask = how[:2], how[2:4], how[4:6], how[6:8], how[8]
    outputs, part, *kernel = weight.shape
    out = np.zeros((len(images), outputs, *offset.shape[2:])) + bias[:, None, None]
    for n, o, y, x in np.ndindex(out.shape):
        for c, i, j in np.ndindex(part, *kernel):
            channel = o // (outputs // groups) * part + c
            place = (channel // (images.shape[1] // offset_groups) * kernel[0] + i) * kernel[1] + j
            at = (
                start * stride[axis] - pad[axis] + step * dilation[axis] + offset[n, 2 * place + axis, y, x]
                for axis, (start, step) in enumerate(((y, i), (x, j)))
            )
            share = mask[n, place, y, x] if use_mask else 1
            out[n, o, y, x] += weight[o, c, i, j] * share * pixel(images[n, channel], *at)
    return out


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_reads_where_the_offsets_say(case, masked):
    arrays, how = arrays_of(case, masked=masked)
    np.testing.assert_allclose(CONVOLVE(*map(weft.tensor, arrays), *how).numpy(), convolved(arrays, how), atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_there_is_a_derivative_by_each_tensor(case):
    arrays, how = arrays_of(case)
    inputs = [weft.tensor(x, requires_grad=True) for x in arrays]
    assert gradcheck(lambda *x: CONVOLVE(*x, *how), inputs)
    out = CONVOLVE(*inputs, *how)
    named = weft.ops.torchvision._deform_conv2d_backward(weft.ones_like(out), *inputs, *how)
    for found, wanted in zip(named, weft.autograd.grad(out.sum(), inputs), strict=True):
        assert weft.allclose(found, wanted)


def test_no_images():
    arrays, how = arrays_of(CASES[0])
    images, weight, offset, mask, bias = map(weft.tensor, arrays)
    assert CONVOLVE(images[:0], weight, offset[:0], mask[:0], bias, *how).shape == (0, 2, *offset.shape[2:])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({0: lambda x: x[0]}, "input must have 4 dims"),
        ({2: lambda x: x[:, 1:]}, r"offset.shape\[1\] is not valid: got: 11 expected: 12"),
        ({2: lambda x: x[:1]}, "invalid batch size of offset"),
        ({2: lambda x: x[..., 1:]}, r"offset output dims: \(4, 5\) - computed output dims: \(4, 6\)"),
        ({3: lambda x: x[:, 1:]}, r"mask.shape\[1\] is not valid: got: 5 expected: 6"),
        ({4: lambda x: x[1:]}, r"bias must have shape \[2\]"),
        ({1: lambda x: x.float()}, "expected scalar type Double but found Float"),
        ({5: lambda _: 0}, "stride_h: 0 stride_w: 1"),
        ({7: lambda _: -1}, "pad_h: -1 pad_w: 1"),
        ({11: lambda _: 3}, "does not fit 4 channels in 3 groups"),
        ({12: lambda _: 3}, "4 channels cannot be divided into 3 offset groups"),
    ],
)
def test_what_does_not_fit(changes, text):
    arrays, how = arrays_of(CASES[0])
    arguments = [*map(weft.tensor, arrays), *how]
    for at, change in changes.items():
        arguments[at] = change(arguments[at])
    with pytest.raises(RuntimeError, match=text):
        CONVOLVE(*arguments)
