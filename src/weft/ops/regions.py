"""Regions of images as arrays of equal sizes, and their derivatives: torchvision's operators.

Regions are rows (image, x1, y1, x2, y2), and have no gradient. Derivatives are rows, too, for programs that call them
by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
from jax.lax import stop_gradient

from weft.errors import DTypeError, ShapeError
from weft.ops._bins import Grid, pooled, spread
from weft.ops._dims import Factors, OfShapes, Sizes
from weft.ops._findings import Misses
from weft.ops._index import OUT_OF_BOUNDS, UNCHECKED, outside
from weft.ops._kinds import Array, Arrays, Real
from weft.ops._neural import require_float
from weft.ops._table import INTERNAL, Check, Derivative, Shards, defop

_WHOLE = frozenset({"image", "y", "x", "corner", "row", "column"})


def _whole(channel: str) -> frozenset[str]:
    """What is not split: channels, too, where the result has others of its own."""
    return _WHOLE if channel == "channel" else _WHOLE | {"channel", channel}


def _pools(outputs: int, channel: str = "channel") -> OfShapes:
    """The regions may be split and, where they stay what they are, the channels."""

    def rule(shapes: Sequence[Sizes]) -> Factors:
        del shapes
        ins = (("image", "channel", "y", "x"), ("region", "corner"))
        return Factors(ins, (("region", channel, "row", "column"),) * outputs, _whole(channel))

    return rule


def _spreads(inputs: int, channel: str = "channel") -> OfShapes:
    """The reverse. `inputs` counts what has bins."""

    def rule(shapes: Sequence[Sizes]) -> Factors:
        del shapes
        bins = ("region", channel, "row", "column")
        ins = (bins, ("region", "corner"), *(bins,) * (inputs - 1))
        return Factors(ins, (("image", "channel", "y", "x"),), _whole(channel))

    return rule


def _require(input: Array, rois: Array, kernel: str, name: str = "input") -> None:
    """Refuse what is no image, or no region of one."""
    if input.ndim != 4:
        raise ShapeError(f"{name} must have 4 dims (batch, channels, height, width), got {list(input.shape)}")
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ShapeError(f"rois must have shape as Tensor[K, 5], got {list(rois.shape)}")
    require_float(input, f"{kernel}_kernel")
    # 16-bit floats are computed in float32, so they may meet, as in autocast regions.
    if input.dtype != rois.dtype and min(input.dtype.itemsize, rois.dtype.itemsize) > 2:
        raise DTypeError(f"{name} should have the same type as rois, got {input.dtype} and {rois.dtype}")


def _images_check(input: Array, rois: Array) -> Misses:
    return outside(rois[:, 0], input.shape[0], f"a batch of {input.shape[0]} images")


_pooling = partial(defop, public=INTERNAL, check=Check(elements=_images_check, text=OUT_OF_BOUNDS))
_derivative = partial(defop, public=INTERNAL, shards=Shards(partial="sum"))


def _of_one_type(x: Array, rois: Array, spatial_scale: Real) -> list[Array]:
    common = jnp.promote_types(x.dtype, rois.dtype)
    return [jnp.asarray(each, common) for each in (x, rois, spatial_scale)]


def _pooled(grid: Grid, input: Array, rois: Array, spatial_scale: Real) -> Array:
    return pooled(grid, *_of_one_type(input, rois, spatial_scale)).astype(input.dtype)


def _spread(grid: Grid, grad: Array, rois: Array, spatial_scale: Real) -> Array:
    return spread(grid, *_of_one_type(grad, rois, spatial_scale)).astype(grad.dtype)


def _pooled_with_channels(grid: Grid, input: Array, rois: Array, spatial_scale: Real) -> tuple[Array, Array]:
    """Bins with channels of their own and, for each of their elements, the number of its channel."""
    channels, (rows, columns) = grid.image[1], grid.bins
    if channels % (rows * columns):
        raise ShapeError(
            "input channels must be a multiple of pooling height * pooling width, "
            f"got {channels} channels for {rows} x {columns} bins"
        )
    output = _pooled(grid, input, rois, spatial_scale)
    numbers = jnp.arange(channels, dtype=jnp.int32).reshape(-1, rows, columns)
    return output, jnp.broadcast_to(numbers, output.shape)


# --- samples between pixels -----------------------------------------------------------------------------------------


def _roi_align_vjp(
    g: Array,
    input: Array,
    rois: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> tuple[Array, None]:
    grid = Grid(input.shape, (pooled_height, pooled_width), max(sampling_ratio, 0), half_pixel=aligned)
    return _spread(grid, g, rois, spatial_scale), None


@_pooling("torchvision::roi_align", dims=_pools(1), derivative=Derivative(vjp=_roi_align_vjp))
def roi_align(
    input: Array,
    rois: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Array:
    """The mean of samples in each bin (https://arxiv.org/abs/1703.06870)."""
    _require(input, rois, "roi_align_forward")
    grid = Grid(input.shape, (pooled_height, pooled_width), max(sampling_ratio, 0), half_pixel=aligned)
    return _pooled(grid, input, rois, spatial_scale)


@_derivative("torchvision::_roi_align_backward", dims=_spreads(1))
def roi_align_backward(
    grad: Array,
    rois: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Array:
    """The derivative of `roi_align` by the images."""
    _require(grad, rois, "roi_align_backward", "grad")
    sizes = (batch_size, channels, height, width)
    grid = Grid(sizes, (pooled_height, pooled_width), max(sampling_ratio, 0), half_pixel=aligned)
    return _spread(grid, grad, rois, spatial_scale)


def _own_points(sizes: Sizes, pooled_height: int, pooled_width: int, sampling_ratio: int) -> Grid:
    return Grid(sizes, (pooled_height, pooled_width), max(sampling_ratio, 0), half_pixel=True, own_channels=True)


def _ps_roi_align_vjp(
    g: Arrays,
    input: Array,
    rois: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Array, None]:
    grid = _own_points(input.shape, pooled_height, pooled_width, sampling_ratio)
    return _spread(grid, g[0], rois, spatial_scale), None


@_pooling(
    "torchvision::ps_roi_align",
    dims=_pools(2, "own"),
    derivative=Derivative(vjp=_ps_roi_align_vjp),
)
def ps_roi_align(
    input: Array, rois: Array, spatial_scale: Real, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Array, Array]:
    """The mean of samples in each bin, which has channels of its own, and the numbers of these channels."""
    _require(input, rois, "ps_roi_align_forward")
    grid = _own_points(input.shape, pooled_height, pooled_width, sampling_ratio)
    return _pooled_with_channels(grid, input, rois, spatial_scale)


@_derivative("torchvision::_ps_roi_align_backward", dims=_spreads(2, "own"))
def ps_roi_align_backward(
    grad: Array,
    rois: Array,
    channel_mapping: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Array:
    """The derivative of `ps_roi_align` by the images."""
    del channel_mapping
    _require(grad, rois, "ps_roi_align_backward", "grad")
    grid = _own_points((batch_size, channels, height, width), pooled_height, pooled_width, sampling_ratio)
    return _spread(grid, grad, rois, spatial_scale)


# --- whole pixels ---------------------------------------------------------------------------------------------------


def _own_pixels(sizes: Sizes, pooled_height: int, pooled_width: int) -> Grid:
    return Grid(sizes, (pooled_height, pooled_width), None, own_channels=True)


def _ps_roi_pool_vjp(
    g: Arrays, input: Array, rois: Array, spatial_scale: Real, pooled_height: int, pooled_width: int
) -> tuple[Array, None]:
    return _spread(_own_pixels(input.shape, pooled_height, pooled_width), g[0], rois, spatial_scale), None


@_pooling(
    "torchvision::ps_roi_pool",
    dims=_pools(2, "own"),
    derivative=Derivative(vjp=_ps_roi_pool_vjp),
)
def ps_roi_pool(
    input: Array, rois: Array, spatial_scale: Real, pooled_height: int, pooled_width: int
) -> tuple[Array, Array]:
    """The mean of the pixels in each bin, which has channels of its own, and the numbers of these channels."""
    _require(input, rois, "ps_roi_pool_forward")
    grid = _own_pixels(input.shape, pooled_height, pooled_width)
    return _pooled_with_channels(grid, input, rois, spatial_scale)


@_derivative("torchvision::_ps_roi_pool_backward", dims=_spreads(2, "own"))
def ps_roi_pool_backward(
    grad: Array,
    rois: Array,
    channel_mapping: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Array:
    """The derivative of `ps_roi_pool` by the images."""
    del channel_mapping
    _require(grad, rois, "ps_roi_pool_backward", "grad")
    grid = _own_pixels((batch_size, channels, height, width), pooled_height, pooled_width)
    return _spread(grid, grad, rois, spatial_scale)


def _pixels(rois: Array, places: Array) -> tuple[Array, Array, Array]:
    """The image, channel and place in its plane of each element; a missing place is the first."""
    image = rois[:, 0].astype(jnp.int32)[:, None, None, None]
    return image, jnp.arange(places.shape[1])[:, None, None], jnp.maximum(places, 0)


def _at_maxima(grad: Array, rois: Array, places: Array, sizes: Sizes) -> Array:
    """Images with the sum of what came from each pixel; a bin without pixels has none, and gives nothing."""
    batch, channels, height, width = sizes
    planes = jnp.zeros((batch, channels, height * width), grad.dtype)
    return planes.at[_pixels(rois, places)].add(jnp.where(places < 0, 0, grad), **UNCHECKED).reshape(sizes)


def _roi_pool_vjp(g: Arrays, out: Arrays, input: Array, rois: Array) -> tuple[Array, None]:
    return _at_maxima(g[0], rois, out[1], input.shape), None


@_pooling(
    "torchvision::roi_pool",
    dims=_pools(2),
    derivative=Derivative(vjp=_roi_pool_vjp),
)
def roi_pool(
    input: Array, rois: Array, spatial_scale: Real, pooled_height: int, pooled_width: int
) -> tuple[Array, Array]:
    """The largest pixel of each bin, and where it is in its plane; 0 and -1 for a bin without pixels."""
    _require(input, rois, "roi_pool_forward")
    grid = Grid(input.shape, (pooled_height, pooled_width), None)
    # Where the largest are is constant, and the loop that finds them is not differentiated.
    images, rois, scale = stop_gradient((input, rois, jnp.asarray(spatial_scale, rois.dtype)))
    rows, plane = grid.rows(images), input.shape[2] * input.shape[3]

    def larger(carry: tuple[Array, Array], at: Array, weight: Array) -> tuple[Array, Array]:
        largest, places = carry
        values = rows.at[at].get(**UNCHECKED)
        better = (weight > 0)[..., None] & (values > largest)
        return jnp.where(better, values, largest), jnp.where(better, (at % plane)[..., None], places)

    shape = (rois.shape[0], *grid.bins, input.shape[1])
    init = (jnp.full(shape, -jnp.inf, input.dtype), jnp.full(shape, -1, jnp.int32))
    places = grid.visit(rois, scale, larger, init)[1].transpose(0, 3, 1, 2)
    planes = input.reshape(*input.shape[:2], plane)
    return jnp.where(places < 0, 0, planes.at[_pixels(rois, places)].get(**UNCHECKED)), places


@_derivative("torchvision::_roi_pool_backward", dims=_spreads(2))
def roi_pool_backward(
    grad: Array,
    rois: Array,
    argmax: Array,
    spatial_scale: Real,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Array:
    """The derivative of `roi_pool` by the images, of which `argmax` has the places."""
    del spatial_scale, pooled_height, pooled_width
    _require(grad, rois, "roi_pool_backward", "grad")
    return _at_maxima(grad, rois, argmax, (batch_size, channels, height, width))
