"""Resizing and sampling of images under their public names."""

from __future__ import annotations

import warnings

from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composite.neural import interpolate
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedDTypeError, ValueRangeError
from weft.ops._table import IN_FUNCTIONAL
from weft.ops.grid import BICUBIC, BILINEAR, BORDER, NEAREST, REFLECTION, ZEROS

_MODES = {"bilinear": BILINEAR, "nearest": NEAREST, "bicubic": BICUBIC}
_PADDINGS = {"zeros": ZEROS, "border": BORDER, "reflection": REFLECTION}


def _aligned(align_corners: bool | None) -> bool:
    """The flag `align_corners`, with a `UserWarning` if it is not given."""
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
            "details.",
            stacklevel=3,
        )
    return bool(align_corners)


def _number(name: str, table: dict[str, int], what: str, choices: str) -> int:
    if name not in table:
        raise ValueRangeError(f"nn.functional.grid_sample(): expected {what} to be {choices}, but got: '{name}'")
    return table[name]


@composite(public=IN_FUNCTIONAL)
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Images (batch, channels, ..., height, width) at the points (x, y, ...) of the grid's last dim, from -1 to 1.

    `align_corners`: whether -1 and 1 are the centres of the corner pixels, rather than the edges of the image.
    """
    interpolation = _number(mode, _MODES, "mode", "'bilinear', 'nearest' or 'bicubic'")
    padding = _number(padding_mode, _PADDINGS, "padding_mode", "'zeros', 'border', or 'reflection'")
    return op.grid_sampler(input, grid, interpolation, padding, _aligned(align_corners))


@composite(public=IN_FUNCTIONAL)
def affine_grid(theta: Tensor, size: Arg, align_corners: bool | None = None) -> Tensor:
    """The grid (batch, ..., n) with which `grid_sample` makes images of `size` by affine maps (batch, n, n + 1)."""
    aligned = _aligned(align_corners)
    if not theta.is_floating_point():
        raise ValueRangeError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise UnsupportedDTypeError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueRangeError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got {theta.shape}."
        )
    if aligned and min(size[2:]) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This "
            "is not an intended use case of affine_grid. See the documentation of affine_grid for details.",
            stacklevel=2,
        )
    elif min(size) <= 0:
        raise ValueRangeError(f"Expected non-zero, positive output size. Got {size}")
    return op.affine_grid_generator(theta, tuple(size), aligned)


def _deprecated(name: str) -> None:
    warnings.warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)


@composite(public=IN_FUNCTIONAL)
def upsample(
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The former name of `interpolate`."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(public=IN_FUNCTIONAL)
def upsample_nearest(input: Tensor, size: object = None, scale_factor: object = None) -> Tensor:
    """The former name of `interpolate` with the nearest pixel."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


@composite(public=IN_FUNCTIONAL)
def upsample_bilinear(input: Tensor, size: object = None, scale_factor: object = None) -> Tensor:
    """The former name of bilinear `interpolate` with aligned corners."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)
