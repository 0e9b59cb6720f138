"""Images sampled at the points of a grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck
from weft.nn import functional as F

IMAGE = np.cos(np.arange(24) * 0.9).reshape(1, 2, 3, 4)
POINTS = np.array([[-0.9, -0.3], [0.2, 0.7], [1.4, -1.8], [-2.6, 0.1], [0.55, 1.0]]).reshape(1, 5, 1, 2)


def mirrored(x, low, high):
    """A coordinate reflected at two borders until it lies between them."""
    while not low <= x <= high:
        x = 2 * low - x if x < low else 2 * high - x
    return x


def placed(x, size, padding, align):
    """A coordinate in pixels after padding."""
    if padding == "border":
        return np.clip(x, 0, size - 1)
    if padding == "reflection":
        low, high = (0, size - 1) if align else (-0.5, size - 0.5)
        return np.clip(mirrored(x, low, high), 0, size - 1)
    return x


def taps(x, size, mode, padding, align):
    """Positions and weights along one axis."""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if mode == "bicubic":
        low = int(np.floor(x))
        at = np.arange(low - 1, low + 3)
        d = np.abs(x - at)
        a = -0.75
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        weights = np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, far)
        return [(int(placed(i, size, padding, align)), w) for i, w in zip(at, weights, strict=True)]
    x = placed(x, size, padding, align)
    low = int(np.floor(x))
    return [(int(np.round(x)), 1.0)] if mode == "nearest" else [(low, low + 1 - x), (low + 1, x - low)]


def sampled(image, point, mode, padding, align):
    """The channels of (channel, height, width) at one point (x, y)."""
    axes = [taps(x, size, mode, padding, align) for x, size in zip(point[::-1], image.shape[1:], strict=True)]
    total = np.zeros(image.shape[0])
    for (row, wide), (column, tall) in itertools.product(*axes):
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total += wide * tall * image[:, row, column]
    return total


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_points_read_the_pixels_around_them(mode):
    cases = list(itertools.product(["zeros", "border", "reflection"], [False, True]))
    found = weft.cat([F.grid_sample(weft.tensor(IMAGE), weft.tensor(POINTS), mode, *case) for case in cases]).numpy()
    for case, values in zip(cases, found[..., 0], strict=True):
        expected = [sampled(IMAGE[0], point, mode, *case) for point in POINTS[0, :, 0]]
        np.testing.assert_allclose(values.T, expected, atol=1e-12, err_msg=str(case))


def test_derivatives():
    image, points = weft.tensor(IMAGE[:, :1]).requires_grad_(), weft.tensor(POINTS[:, :3]).requires_grad_()
    assert gradcheck(lambda x, g: F.grid_sample(x, g, "bilinear", "reflection", False), (image, points))


def test_no_gradient_where_the_border_holds_a_point():
    points = weft.tensor([[[[-3.0, 0.1]]]]).double().requires_grad_()
    F.grid_sample(weft.tensor(IMAGE), points, padding_mode="border", align_corners=False).sum().backward()
    assert points.grad is not None
    assert points.grad[0, 0, 0, 0].item() == 0
    assert points.grad[0, 0, 0, 1].item() != 0


def test_volumes():
    volume = weft.tensor(np.arange(8.0).reshape(1, 1, 2, 2, 2))
    middle = F.grid_sample(volume, weft.zeros(1, 1, 1, 1, 3).double(), align_corners=True)
    assert middle.item() == 3.5
    corner = F.grid_sample(volume, weft.tensor([[[[[1.0, -1.0, 1.0]]]]]).double(), align_corners=True)
    assert corner.item() == 5  # (x, y, z): the last of the width, the first of the height, the last of the depth


@pytest.mark.parametrize("shape", [(0, 1, 2, 2), (1, 0, 2, 2)])
def test_nothing_to_sample(shape):
    grid = weft.zeros(shape[0], 3, 3, 2)
    assert F.grid_sample(weft.zeros(*shape), grid, align_corners=False).shape == (*shape[:2], 3, 3)


def test_the_identity_gives_the_image_back():
    identity = weft.tensor([[[1.0, 0, 0], [0, 1, 0]]]).double()
    for align in (False, True):
        grid = F.affine_grid(identity, (1, 2, 3, 4), align)
        assert grid.shape == (1, 3, 4, 2)
        np.testing.assert_allclose(F.grid_sample(weft.tensor(IMAGE), grid, align_corners=align).numpy(), IMAGE)


def test_an_affine_map_moves_the_points():
    theta = weft.tensor([[[0.0, 2, 0, 1], [1, 0, 0, 0], [0, 0, 3, -1]]])
    grid = F.affine_grid(theta, weft.Size((1, 1, 2, 2, 2)), align_corners=True)
    assert grid[0, 0, 1, 0].tolist() == [3, -1, -4]  # from (x, y, z) = (-1, 1, -1)


def test_what_is_left_open_is_told():
    with pytest.warns(UserWarning, match="Please specify align_corners=True if the old behavior is desired"):
        F.grid_sample(weft.zeros(1, 1, 2, 2), weft.zeros(1, 1, 1, 2))
    with pytest.warns(UserWarning, match="behavior has changed for unit-size grids when align_corners=True"):
        F.affine_grid(weft.ones(1, 2, 3), (1, 1, 1, 2), True)


X, G, T = weft.ones(1, 1, 2, 2), weft.zeros(1, 2, 2, 2), weft.ones(1, 2, 3)
BAD = [
    ("F.grid_sample(X, G, 'x')", ValueError, "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'x'$"),
    ("F.grid_sample(X, G, 'nearest', 'x')", ValueError, "expected padding_mode to be 'zeros', 'border', or 'reflectio"),
    ("F.grid_sample(X, G.double())", RuntimeError, "^expected scalar type Float but found Double$"),
    ("F.grid_sample(X, G[..., :1])", RuntimeError, r"to have size 2 in last dimension, but got grid with sizes \[1, 2"),
    ("F.grid_sample(X, G.expand(2, 2, 2, 2))", RuntimeError, "expected grid and input to have same batch size"),
    ("F.grid_sample(X[0], G[0, :, :, :1])", RuntimeError, "same batch size|expected 4D or 5D input and grid"),
    ("F.grid_sample(X[:, :, :0], G)", RuntimeError, r"input has sizes \[1, 1, 0, 2\] with dimension 2 being empty$"),
    (
        "F.grid_sample(X[None], weft.zeros(1, 2, 2, 2, 3), 'bicubic')",
        RuntimeError,
        "bicubic .* only supports 4D input$",
    ),
    ("F.grid_sample(X.long(), G.long())", NotImplementedError, "\"grid_sampler_2d_cpu_kernel_impl\" not .* 'Long'"),
    ("F.affine_grid(T, (1, 1, 0, 2))", ValueError, r"^Expected non-zero, positive output size. Got \(1, 1, 0, 2\)$"),
    ("F.affine_grid(T.long(), (1, 1, 2, 2))", ValueError, "^Expected theta to have floating point type, but got torch"),
    ("F.affine_grid(T[..., :2], (1, 1, 2, 2))", ValueError, "^Expected a batch of 2D affine matrices of shape Nx2x3"),
    ("F.affine_grid(T, (1, 1, 2))", NotImplementedError, r"^affine_grid only supports 4D and 5D sizes.* \(1, 1, 2\).$"),
    ("F.affine_grid(T, (2, 1, 2, 2))", RuntimeError, r"of batch2 tensor to be: \[2, 3\] but got: \[1, 3\].$"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD, ids=[case[0] for case in BAD])
@pytest.mark.filterwarnings("ignore:Default grid_sample and affine_grid behavior")
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        eval(call)


@pytest.mark.parametrize(
    ("name", "mode", "align"),
    [("upsample", "nearest", None), ("upsample_nearest", "nearest", None), ("upsample_bilinear", "bilinear", True)],
)
def test_old_names_of_interpolate(name, mode, align):
    with pytest.warns(UserWarning, match=f"^`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` ins"):
        found = getattr(F, name)(weft.tensor(IMAGE), scale_factor=2)
    assert found.tolist() == F.interpolate(weft.tensor(IMAGE), None, 2, mode, align).tolist()
