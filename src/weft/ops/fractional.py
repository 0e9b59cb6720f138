"""Maximum pooling over windows at random places (https://arxiv.org/abs/1412.6071)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from weft.errors import DTypeError, ShapeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, NameOf, Sizes, Static, require_sizes
from weft.ops._kinds import Array, Shape
from weft.ops._neural import require_float
from weft.ops._table import INTERNAL, Arithmetic, Derivative, OpDef, Types, defop

_SIDES = ("time", "height", "width")


def _plane_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Channels may be split. Space is whole, and so is the batch, which may be smaller than that of the samples."""
    n = len(static["output_size"])
    space = tuple(f"space:{d}" for d in range(n))
    new = tuple(map(NameOf, space))
    batch = ("batch",) * (len(shapes[0]) - n - 1)
    ins = ((*batch, "channel", *space), ("sample", "channel", "side"))
    return Factors(ins, ((*batch, "channel", *new),) * 2, frozenset((*space, "batch", "sample", "side")))


def _check(input: Array, samples: Array, kernel: Shape, counts: Shape, n: int) -> None:
    op = f"fractional_max_pool{n}d{'_out' if n == 3 else ''}()"
    for dim in range(input.ndim - n - 1, input.ndim):
        if input.shape[dim] == 0:
            raise ShapeError(
                f"{op}: Expected input to have non-zero size for non-batch dimensions, "
                f"but got{list(input.shape)} with dimension {dim} being empty."
            )
    sizes = input.shape[input.ndim - n :]
    if min(kernel) <= 0:
        raise ShapeError(f"{op}: kernel_size must be greater than 0, but got {kernel}")
    for side, size, k, count in zip(_SIDES[3 - n :], sizes, kernel, counts, strict=True):
        if count + k - 1 >= size + 1:
            raise ShapeError(f"{op}: pool {side} {k} too large relative to input {side} {size}")
    require_sizes((*input.shape[: input.ndim - n], *counts))
    require_float(input, f"fractional_max_pool{n}d_out_frame")
    _check_samples(input, samples, n)


def _check_samples(input: Array, samples: Array, n: int) -> None:
    if samples.dtype != input.dtype:
        raise DTypeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise ShapeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    batch = input.shape[0] if input.ndim == n + 2 else 1
    if samples.shape[0] < batch:
        raise ShapeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != input.shape[input.ndim - n - 1]:
        raise ShapeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != n:
        raise ShapeError(f"Expect _random_samples.size(2) equals to {n}; got {samples.shape[2]}.")


def _starts(sample: Array, size: int, count: int, kernel: int) -> Array:
    """Starts of the windows along one side: (..., count), from one sample a plane. The last window ends at the edge."""
    last = jnp.full((*sample.shape, 1), size - kernel)
    if count < 2:
        return last[..., :count]
    step = jnp.asarray((size - kernel) / (count - 1), sample.dtype)
    sample = sample[..., None]
    at = jnp.trunc((sample + np.arange(count - 1).astype(sample.dtype)) * step) - jnp.trunc(sample * step)
    return jnp.concatenate([at.astype(last.dtype), last], axis=-1)


def _places(samples: Array, sizes: Shape, kernel: Shape, counts: Shape) -> Array:
    """Flat positions of the elements of each window, in order: (planes, *counts, elements of a window)."""
    n = len(sizes)
    sides = samples.reshape(-1, n)[:, ::-1] if n == 2 else samples.reshape(-1, n)  # 2D: the width's sample is first
    flat: Any = 0
    for d, (size, k, count) in enumerate(zip(sizes, kernel, counts, strict=True)):
        covered = _starts(sides[:, d], size, count, k)[..., None] + jnp.arange(k)  # (planes, count, k)
        shape = [covered.shape[0]] + [1] * (2 * n)
        shape[1 + d], shape[1 + n + d] = count, k
        flat = flat * size + covered.reshape(shape)
    return flat.reshape(flat.shape[0], math.prod(counts), math.prod(kernel))


def _fractional_row(n: int) -> OpDef:
    def fractional_max_pool(
        input: Array, samples: Array, kernel_size: Shape, output_size: Shape
    ) -> tuple[Array, Array]:
        """The largest element of each of `output_size` windows and its flat position in the plane.

        `samples` of (batch, channels, sides), from 0 up to 1, choose where the windows lie.
        """
        _check(input, samples, kernel_size, output_size, n)
        lead, sizes = input.shape[: input.ndim - n], input.shape[input.ndim - n :]
        planes = input.reshape(math.prod(lead), math.prod(sizes))
        used = samples[: lead[0] if input.ndim == n + 2 else 1]
        places = _places(used, sizes, kernel_size, output_size)
        windows = jnp.take_along_axis(planes[:, None], places, axis=2)  # jnp.argmax finds the first maximum, or NaN
        best = jnp.argmax(windows, axis=2, keepdims=True)
        shape = (*lead, *output_size)
        at = jnp.take_along_axis(places, best, axis=2)[..., 0]
        return jnp.take_along_axis(planes, at, axis=1).reshape(shape), at.reshape(shape)

    return defop(
        f"fractional_max_pool{n}d_from",
        derivative=Derivative(name=f"FractionalMaxPool{n}D"),
        types=Types(autocast=CPU_FLOAT32, arithmetic=Arithmetic.NONE),
        dims=_plane_dims,
        outputs=("output", "indices"),
        public=INTERNAL,
    )(fractional_max_pool)


_ROWS = tuple(_fractional_row(n) for n in (2, 3))
