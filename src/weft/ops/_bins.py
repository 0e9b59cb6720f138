"""Regions of images cut into bins, of which each has samples: what operators on regions share.

A region is a row (image, x1, y1, x2, y2). The samples of a region form a grid, so each axis is described alone, and one
loop goes through the samples of all bins. What is read at a place stands together in memory: the channels come last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp

from weft.ops._index import UNCHECKED
from weft.ops._jax import fori_loop
from weft.ops._kinds import Array

T = TypeVar("T")
Taps = list[tuple[Array, Array]]
"""The coordinates along an axis that one sample of each bin reads, (region, bin), and their weights."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The samples along one axis: the most that a bin has, and the taps of each."""

    count: Array | int
    taps: Callable[[Array], Taps]


@dataclass(frozen=True, slots=True)
class Grid:
    """How regions are sampled. It is hashable: derivatives take it as a constant.

    image         batch, channels, height, width
    bins          rows and columns of bins in a region
    samples       rows and columns of samples in a bin: points between pixels. 0: one for each pixel that it covers, or
                  None: the pixels themselves
    half_pixel    whether coordinates name the corners of pixels, and regions may be smaller than a pixel
    own_channels  whether each bin has channels of its own, which are (channel, row of bins, column of bins)
    """

    image: tuple[int, int, int, int]
    bins: tuple[int, int]
    samples: int | None
    half_pixel: bool = False
    own_channels: bool = False

    def axes(self, rois: Array, scale: Array) -> list[Axis]:
        """The vertical and the horizontal axis."""
        of_bins = self._pixels if self.samples is None else self._points
        corners = rois * scale
        return [
            of_bins(corners[:, first], corners[:, first + 2], count, size)
            for first, count, size in zip((2, 1), self.bins, self.image[2:], strict=True)
        ]

    def _points(self, start: Array, stop: Array, bins: int, size: int) -> Axis:
        """Samples at equal distances, which are interpolated between two pixels."""
        shift = 0.5 if self.half_pixel else 0
        length = stop - start if self.half_pixel else jnp.maximum(stop - start, 1)
        step = length / bins
        wanted = jnp.full_like(start, self.samples) if self.samples else jnp.maximum(jnp.ceil(step), 0)
        edges = (start - shift)[:, None] + jnp.arange(bins, dtype=start.dtype) * step[:, None]
        # A region of no length has bins without samples.
        share = jnp.where(wanted > 0, 1 / jnp.maximum(wanted, 1), 0)

        def taps(sample: Array) -> Taps:
            at = edges + ((sample + 0.5).astype(start.dtype) * step * share)[:, None]
            counts = (at >= -1) & (at <= size) & (sample < wanted)[:, None]
            at = jnp.clip(at, 0, size - 1)
            low = jnp.floor(at)
            weight = jnp.where(counts, share[:, None], 0)
            place = low.astype(jnp.int32)
            return [(place, (1 - (at - low)) * weight), (jnp.minimum(place + 1, size - 1), (at - low) * weight)]

        return Axis(self.samples or wanted.max(initial=0).astype(jnp.int32), taps)

    def _pixels(self, start: Array, stop: Array, bins: int, size: int) -> Axis:
        """All pixels of a bin, with equal weights. The ends of bins with channels of their own are exclusive."""
        start, stop = nearest(start), nearest(stop) + (0 if self.own_channels else 1)
        step = jnp.maximum(stop - start, 1) / bins
        edges = jnp.arange(bins + 1, dtype=start.dtype) * step[:, None]
        last = size - 1 if self.own_channels else size
        first = jnp.clip(jnp.floor(edges[:, :-1]) + start[:, None], 0, last).astype(jnp.int32)
        end = jnp.clip(jnp.ceil(edges[:, 1:]) + start[:, None], 0, last).astype(jnp.int32)
        length = end - first
        share = 1 / jnp.maximum(length, 1).astype(start.dtype)
        return Axis(length.max(initial=0), lambda sample: [(first + sample, jnp.where(sample < length, share, 0))])

    def rows(self, images: Array) -> Array:
        """Images as rows of channels, one for each place, and of each bin if it has channels of its own."""
        if not self.own_channels:
            return images.transpose(0, 2, 3, 1).reshape(-1, images.shape[1])
        (batch, channels, *size), bins = self.image, self.bins
        own = channels // (bins[0] * bins[1])
        return images.reshape(batch, own, *bins, *size).transpose(0, 2, 3, 4, 5, 1).reshape(-1, own)

    def images(self, rows: Array) -> Array:
        """The reverse of `rows`."""
        batch, channels, *size = self.image
        if not self.own_channels:
            return rows.reshape(batch, *size, channels).transpose(0, 3, 1, 2)
        return rows.reshape(batch, *self.bins, *size, -1).transpose(0, 5, 1, 2, 3, 4).reshape(self.image)

    def visit(self, rois: Array, scale: Array, body: Callable[[T, Array, Array], T], init: T) -> T:
        """`body(carry, rows, weights)` for one sample of all bins after another: (region, row, column of bins)."""
        vertical, horizontal = self.axes(rois, scale)
        plane = rois[:, 0].astype(jnp.int32)[:, None, None]
        if self.own_channels:
            plane = plane * (self.bins[0] * self.bins[1]) + jnp.arange(self.bins[0] * self.bins[1]).reshape(self.bins)

        def of_row(sample: Array, carry: T) -> T:
            of_y = vertical.taps(sample)

            def of_column(sample: Array, carry: T) -> T:
                of_x = horizontal.taps(sample)
                for y, y_weight in of_y:
                    for x, x_weight in of_x:
                        at = (plane * self.image[2] + y[:, :, None]) * self.image[3] + x[:, None, :]
                        carry = body(carry, at, y_weight[:, :, None] * x_weight[:, None, :])
                return carry

            return fori_loop(0, horizontal.count, of_column, carry)

        return fori_loop(0, vertical.count, of_row, init)


def nearest(x: Array) -> Array:
    """The nearest integer or, between two, the one that is further from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


# --- sums over samples, and their derivatives, which are each other's -------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def pooled(grid: Grid, images: Array, rois: Array, scale: Array) -> Array:
    """The weighted sum over the samples of each bin: (region, channel, row, column of bins)."""
    rows = grid.rows(images)

    def add(total: Array, at: Array, weight: Array) -> Array:
        return total + weight[..., None] * rows.at[at].get(**UNCHECKED)

    total = jnp.zeros((rois.shape[0], *grid.bins, rows.shape[1]), images.dtype)
    return grid.visit(rois, scale, add, total).transpose(0, 3, 1, 2)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def spread(grid: Grid, bins: Array, rois: Array, scale: Array) -> Array:
    """The images whose places have the sum of what is in the bins that they are samples of, with their weights."""
    channels = bins.transpose(0, 2, 3, 1)
    own = grid.bins[0] * grid.bins[1] if grid.own_channels else 1

    def add(total: Array, at: Array, weight: Array) -> Array:
        return total.at[at].add(weight[..., None] * channels, **UNCHECKED)

    batch, _, height, width = grid.image
    total = jnp.zeros((batch * own * height * width, channels.shape[-1]), bins.dtype)
    return grid.images(grid.visit(rois, scale, add, total))


def _and_regions(function: Callable[..., Array]) -> Callable[..., tuple[Array, tuple[Array, Array]]]:
    return lambda grid, x, rois, scale: (function(grid, x, rois, scale), (rois, scale))


def _by(function: Callable[..., Array]) -> Callable[..., tuple[Array, Array, Array]]:
    """A derivative that has none by the regions."""
    return lambda grid, regions, g: (function(grid, g, *regions), *map(jnp.zeros_like, regions))


pooled.defvjp(_and_regions(pooled), _by(spread))
spread.defvjp(_and_regions(spread), _by(pooled))
