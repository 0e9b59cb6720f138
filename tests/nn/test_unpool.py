"""Pooling by p-norms and at random places, and the partial inverse of maximum pooling."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


def cosines(*shape):
    return weft.tensor(np.cos(np.arange(np.prod(shape)) * 0.9).reshape(shape))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_maxima_go_back_to_where_they_came_from(n):
    x = cosines(2, 3, *[5] * n)
    pooled, indices = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)(x)
    unpool = getattr(nn, f"MaxUnpool{n}d")(2)
    found = unpool(pooled, indices, output_size=x.shape).numpy()
    kept = found != 0
    assert found.shape == x.shape
    assert kept.sum() == pooled.numel()
    np.testing.assert_array_equal(found[kept], x.numpy()[kept])
    assert unpool(pooled[:0], indices[:0]).shape == (0, 3, *[4] * n)


def test_the_gradient_of_unpooling_reads_the_places():
    x = weft.tensor([[1.0, 2.0]]).requires_grad_()
    F.max_unpool1d(x, weft.tensor([[0, 3]]), 2)[0].backward(weft.tensor([1.0, 2, 3, 4]))
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 4.0]]


ONES, AT = weft.ones(1, 1, 2, 2), weft.zeros(1, 1, 2, 2).long()
BAD_UNPOOLS = [
    (
        "ONES, AT[..., :1], 2",
        RuntimeError,
        r"same as that of the input tensor \(\[1, 1, 2, 2\]\) but got .* \[1, 1, 2, 1",
    ),
    ("ONES, AT.int(), 2", RuntimeError, "^elements in indices should be type int64 but got: Int$"),
    (
        "ONES[0, 0], AT[0, 0], 2",
        RuntimeError,
        "^Input to max_unpooling2d should be a 3d or 4d Tensor, but got .* 2 dim",
    ),
    (
        "ONES[:, :0], AT[:, :0], 2",
        RuntimeError,
        r"non-zero size .* but got \[1, 0, 2, 2\] with dimension 1 being empty",
    ),
    ("ONES, AT, 2, None, 0, (9, 9)", ValueError, r'^invalid output_size "\(9, 9\)" \(dim 0 must be between 2 and 6\)$'),
    ("ONES, AT, 2, None, 0, (9,)", ValueError, "containing 2 or 4 elements, but it has a length of '1'$"),
    ("ONES, AT, 2, 2, 4", ValueError, r"non-negative spatial dimensions, but got output_size\[0\]=-4$"),
    ("ONES.long(), AT, 2", NotImplementedError, "\"max_unpool2d\" not implemented for 'Long'"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_UNPOOLS, ids=[case[0] for case in BAD_UNPOOLS])
def test_bad_unpooling(arguments, error, text):
    with pytest.raises(error, match=text):
        F.max_unpool2d(*eval(arguments))


@pytest.mark.parametrize("place", [16, -1])
def test_places_outside_are_told_where_the_result_is_read(place):
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        F.max_unpool2d(ONES, AT + place, 2).tolist()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_windows_by_their_norm(p):
    x = cosines(1, 2, 4, 6).abs()
    windows = x.numpy().reshape(1, 2, 2, 2, 3, 2).swapaxes(3, 4).reshape(1, 2, 2, 3, 4)
    np.testing.assert_allclose(nn.LPPool2d(p, 2)(x).numpy(), np.linalg.norm(windows, p, axis=-1))


def test_windows_by_their_norm_over_one_and_three_dims():
    x = cosines(1, 4)
    np.testing.assert_allclose(nn.LPPool1d(2, 2, 1)(x).numpy(), np.hypot(x.numpy()[:, :-1], x.numpy()[:, 1:]))
    assert nn.LPPool3d(2, 2, ceil_mode=True)(cosines(1, 1, 3, 3, 3)).shape == (1, 1, 2, 2, 2)
    np.testing.assert_allclose(F.lp_pool1d(x, -math.inf, 4).numpy(), -x.abs().numpy().min(1, keepdims=True) * -1)


def starts(sample, size, count, kernel):
    """The definition: rising by (size - kernel) / (count - 1) from a random phase, the last one at the edge."""
    step = (size - kernel) / (count - 1) if count > 1 else 0
    return [int((i + sample) * step) - int(sample * step) for i in range(count - 1)] + [size - kernel]


def test_windows_at_random_places():
    x = cosines(2, 2, 7, 6)
    samples = np.linspace(0.1, 0.9, 8).reshape(2, 2, 2)
    pool = nn.FractionalMaxPool2d((2, 3), (4, 3), return_indices=True, _random_samples=weft.tensor(samples))
    found, places = pool(x)
    assert list(pool.state_dict()) == ["_random_samples"]
    for b, c in np.ndindex(2, 2):
        rows, columns = starts(samples[b, c, 1], 7, 4, 2), starts(samples[b, c, 0], 6, 3, 3)
        plane = x.numpy()[b, c]
        expected = [[plane[i : i + 2, j : j + 3].max() for j in columns] for i in rows]
        np.testing.assert_array_equal(found.numpy()[b, c], expected)
        np.testing.assert_array_equal(plane.ravel()[places.numpy()[b, c]], expected)


def test_random_places_are_drawn_anew():
    x = cosines(1, 1, 9, 9, 9).requires_grad_()
    pool = nn.FractionalMaxPool3d(2, output_ratio=0.5)
    found = pool(x)
    found.sum().backward()
    assert found.shape == (1, 1, 4, 4, 4)
    assert x.grad is not None
    assert x.grad.sum().item() == 64
    assert any((pool(x) != found).any() for _ in range(5))


PLANE = weft.ones(1, 1, 4, 4)
BAD_FRACTIONS = [
    ("F.fractional_max_pool2d(PLANE, 2)", ValueError, "requires specifying either an output_size or an output_ratio$"),
    ("F.fractional_max_pool2d(PLANE, 2, output_ratio=(1, 1, 1))", ValueError, "single Int or tuple of Ints.$"),
    ("F.fractional_max_pool2d(PLANE, 2, 4)", RuntimeError, r": pool height 2 too large relative to input height 4$"),
    ("F.fractional_max_pool2d(PLANE, (2, 2, 2), 2)", RuntimeError, "kernel_size must either be a single Int or tuple"),
    ("F.fractional_max_pool2d(PLANE[0, 0], 2, 2)", IndexError, "^Dimension out of range"),
    ("F.fractional_max_pool2d(PLANE[:, :, :0], 2, 2)", RuntimeError, r"but got\[1, 1, 0, 4\] with dimension 2 being"),
    ("F.fractional_max_pool2d(PLANE, 0, 2)", RuntimeError, r"kernel_size must be greater than 0, but got \(0, 0\)$"),
    ("F.fractional_max_pool2d(PLANE, 2, 2, _random_samples=weft.rand(1, 1, 3))", RuntimeError, "equals to 2; got 3.$"),
    ("F.fractional_max_pool2d(PLANE, 2, 2, _random_samples=weft.rand(1, 1))", RuntimeError, "3 dimensions, got 2$"),
    ("F.fractional_max_pool2d(PLANE, 2, 2, _random_samples=weft.rand(1, 2, 2))", RuntimeError, "input channel size.$"),
    ("F.fractional_max_pool2d(PLANE, 2, 2, _random_samples=weft.rand(0, 1, 2))", RuntimeError, "input batch size.$"),
    ("F.fractional_max_pool2d(PLANE, 2, 2, _random_samples=ONES[0].double())", RuntimeError, "same dtype as input$"),
    ("nn.FractionalMaxPool2d(2)", ValueError, "^FractionalMaxPool2d requires specifying either an output size, or a"),
    ("nn.FractionalMaxPool2d(2, 2, 0.5)", ValueError, "^only one of output_size and output_ratio may be specified$"),
    ("nn.FractionalMaxPool2d(2, output_ratio=2)", ValueError, r"^output_ratio must be between 0 and 1 \(got 2\)$"),
    ("nn.FractionalMaxPool3d(0, 2)", ValueError, "^kernel_size must be greater than 0, but got 0$"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD_FRACTIONS, ids=[case[0] for case in BAD_FRACTIONS])
def test_bad_windows_at_random_places(call, error, text):
    with pytest.raises(error, match=text):
        eval(call)


def test_functions_that_always_give_positions():
    x = cosines(1, 2, 4)
    for found, pooled in (
        (F.max_pool1d_with_indices(x, 2), F.max_pool1d(x, 2, return_indices=True)),
        (F.adaptive_max_pool1d_with_indices(x, 2), F.adaptive_max_pool1d(x, 2, return_indices=True)),
    ):
        assert [a.tolist() for a in found] == [a.tolist() for a in pooled]


SHOWN = [
    ("nn.MaxUnpool2d(2)", "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"),
    ("nn.LPPool2d(2, (3, 2))", "LPPool2d(norm_type=2, kernel_size=(3, 2), stride=None, ceil_mode=False)"),
    ("nn.FractionalMaxPool2d(2, 3)", "FractionalMaxPool2d()"),
]


@pytest.mark.parametrize(("layer", "text"), SHOWN)
def test_what_layers_show(layer, text):
    assert repr(eval(layer)) == text
