"""Images sampled at the points of a grid (https://arxiv.org/abs/1506.02025)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.errors import DTypeError, ShapeError
from weft.ops._autocast import Cast, PerDevice
from weft.ops._dims import Factors, Sizes, Static
from weft.ops._kinds import Array, Shape
from weft.ops._memory import require_room
from weft.ops._neural import require_float
from weft.ops._reduce import wide
from weft.ops._resize import keys
from weft.ops._rows import alias
from weft.ops._table import NO_METHOD, Types, defop
from weft.ops._type_names import scalar_name

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _sampler_dims(shapes: Sequence[Sizes]) -> Factors:
    """Batch, channels and points may be split; the image is whole."""
    space = len(shapes[0]) - 2
    image = tuple(f"image:{d}" for d in range(space))
    points = tuple(range(space))
    ins = (("batch", "channel", *image), ("batch", *points, "axis"))
    return Factors(ins, (("batch", "channel", *points),), frozenset((*image, "axis")))


def _check(input: Array, grid: Array, mode: int) -> None:
    sizes, points = list(input.shape), list(grid.shape)
    if input.shape[0] != grid.shape[0]:
        raise ShapeError(
            "grid_sampler(): expected grid and input to have same batch size, "
            f"but got input with sizes {sizes} and grid with sizes {points}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise ShapeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, "
            f"but got grid with sizes {points}"
        )
    if input.ndim not in (4, 5) or input.ndim != grid.ndim:
        raise ShapeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, "
            f"but got input with sizes {sizes} and grid with sizes {points}"
        )
    for dim in range(2, input.ndim):
        if not input.shape[dim]:
            raise ShapeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, "
                f"but input has sizes {sizes} with dimension {dim} being empty"
            )
    if mode == BICUBIC and input.ndim != 4:
        raise ShapeError("grid_sampler(): bicubic interpolation only supports 4D input")
    require_float(input, f"grid_sampler_{input.ndim - 2}d_cpu_kernel_impl")
    if input.dtype != grid.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(grid)}")


def _clipped(x: Array, size: int) -> Array:
    """Coordinates clipped to the image, without gradient where clipped. NaN becomes the first coordinate."""
    return jnp.where(x >= size - 1, size - 1, jnp.where(x > 0, x, 0))


def _reflected(x: Array, size: int, align_corners: bool) -> Array:
    """Coordinates reflected at the centres of the outer pixels (`align_corners`), or at their edges."""
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return jnp.zeros_like(x)
    away = jnp.where(x < low, low - x, x - low)
    flips = jax.lax.stop_gradient(jnp.floor(away / span))
    rest = away - flips * span
    return _clipped(jnp.where(flips % 2 == 0, rest + low, span - rest + low), size)


def _padded(x: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    """Coordinates after padding; with zero padding they are unchanged."""
    if padding_mode == ZEROS:
        return x
    return _clipped(x, size) if padding_mode == BORDER else _reflected(x, size, align_corners)


def _reader(input: Array) -> Callable[[Sequence[Array]], Array]:
    """A function from integer coordinates, one (batch, points) array for each axis, to (batch, channel, points)."""
    sizes = input.shape[2:]
    planes = input.reshape(*input.shape[:2], math.prod(sizes))

    def read(at: Sequence[Array]) -> Array:
        inside = jnp.full(at[0].shape, True)
        flat: Array | int = 0
        for x, size in zip(at, sizes, strict=True):
            inside &= (x >= 0) & (x <= size - 1)
            # NaN is read at 0, since its conversion to an integer is undefined.
            flat = flat * size + jnp.clip(jnp.where(x >= 0, x, 0), 0, size - 1).astype(jnp.int64)
        values = jax.vmap(lambda plane, cells: plane[:, cells])(planes, flat)
        return jnp.where(inside[:, None], values, 0)

    return read


Taps = list[tuple[Array, Array | None]]  # coordinates along one axis, and their weights


def _linear_taps(x: Array) -> Taps:
    low = jnp.floor(x)
    part = x - low
    return [(low, 1 - part), (low + 1, part)]


def _cubic_taps(x: Array) -> Taps:
    """Coordinates and weights of Keys' kernel, for the four pixels around each coordinate."""
    low = jnp.floor(x)
    part = x - low
    ends = (keys(part + 1, near=False), keys(2 - part, near=False))
    return [(low - 1, ends[0]), (low, keys(part, near=True)), (low + 1, keys(1 - part, near=True)), (low + 2, ends[1])]


def _interpolated(read: Callable[[Sequence[Array]], Array], axes: Sequence[Taps]) -> Array:
    """The weighted sum over all combinations of the axes' taps."""
    total: Any = 0
    for taps in itertools.product(*axes):
        value = read([at for at, _ in taps])
        for _, weight in taps:
            value = value if weight is None else value * weight[:, None]
        total = total + value
    return total


def _taps(x: Array, size: int, mode: int, padding_mode: int, align_corners: bool) -> Taps:
    """The pixels, and their weights, that a coordinate from -1 to 1 reads along one axis."""
    x = (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2
    if mode == BICUBIC:
        return [(_padded(at, size, padding_mode, align_corners), weight) for at, weight in _cubic_taps(x)]
    x = _padded(x, size, padding_mode, align_corners)
    return [(jnp.round(x), None)] if mode == NEAREST else _linear_taps(x)


@defop(
    dims=_sampler_dims, types=Types(autocast=PerDevice(cpu=Cast.FLOAT32, accelerator=Cast.PROMOTE)), public=NO_METHOD
)
def grid_sampler(input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Array:
    """Images (batch, channels, ..., height, width) at the points (x, y, ...) of the grid's last dim, from -1 to 1.

    `interpolation_mode` is 0 for (bi- or tri-)linear, 1 for the nearest pixel, 2 for bicubic. `padding_mode` gives the
    pixels outside: 0 for zeros, 1 for the border's pixels, 2 for the reflected image. -1 and 1 are the centres of the
    corner pixels with `align_corners`, else the edges of the image.
    """
    _check(input, grid, interpolation_mode)
    points = wide(grid).reshape(grid.shape[0], math.prod(grid.shape[1:-1]), grid.shape[-1])
    axes = [
        _taps(points[..., -1 - axis], size, interpolation_mode, padding_mode, align_corners)
        for axis, size in enumerate(input.shape[2:])
    ]
    result = _interpolated(_reader(wide(input)), axes)
    return result.reshape(*input.shape[:2], *grid.shape[1:-1]).astype(input.dtype)


alias(grid_sampler, "grid_sampler_2d", "grid_sampler_3d")


def _affine_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """No dim may be split: `size` has that of the batch."""
    space = tuple(f"new:{d}" for d in range(len(static["size"]) - 2))
    del shapes
    return Factors(
        (("batch", "row", "column"),), (("batch", *space, "row"),), frozenset({"batch", "row", "column", *space})
    )


def _centres(size: int, align_corners: bool) -> np.ndarray:
    """Coordinates of the pixels' centres along one side, from -1 to 1."""
    ends = np.linspace(-1, 1, size) if size > 1 else np.zeros(size)
    return ends if align_corners else ends * ((size - 1) / max(size, 1))


@defop(dims=_affine_dims, public=NO_METHOD)
def affine_grid_generator(theta: Array, size: Shape, align_corners: bool) -> Array:
    """The pixels of images of `size` mapped by affine matrices (batch, n, n + 1): points of (batch, ..., n)."""
    if theta.shape[0] != size[0]:
        batch, rest = size[0], theta.shape[1:]
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {rest[1]}] "
            f"but got: [{theta.shape[0]}, {rest[1]}]."
        )
    require_room((*size[:1], *size[2:], theta.shape[1]), theta.dtype)
    sides = np.meshgrid(*(_centres(s, align_corners) for s in size[2:]), indexing="ij")
    points = np.stack([*reversed(sides), np.ones_like(sides[0])], axis=-1).astype(theta.dtype)
    return jnp.einsum("...k,bnk->b...n", points, theta)
