"""Discrete Fourier transforms between complex numbers, from real and to real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from operator import index

import jax.numpy as jnp
from jax import lax

from weft.errors import ShapeError
from weft.ops._dims import Factors, NameOf, Sizes, Static
from weft.ops._kinds import Array
from weft.ops._table import INTERNAL, OWN_ARITHMETIC, SAVES, defop

_AT_ONCE = 3  # dims that XLA transforms in one step


def _transforms(shapes: Sequence[Sizes], static: Static) -> Factors:
    """All dims stay; those that are transformed must be whole."""
    ins, dims = tuple(range(len(shapes[0]))), static["dim"]
    return Factors((ins,), (tuple(NameOf(d) if d in dims else d for d in ins),), frozenset(dims))


_transform_row = partial(defop, dims=_transforms, types=OWN_ARITHMETIC, public=INTERNAL)


def _resized(x: Array, dims: Sequence[int], sizes: Sequence[int]) -> Array:
    """The array with dims cut off at the end or padded there with zeros; a size of -1 leaves the dim as it is."""
    padding = [(0, 0, 0)] * x.ndim
    for d, size in zip(dims, sizes, strict=True):
        if size != -1:
            padding[d] = (0, size - x.shape[d], 0)
    return lax.pad(x, jnp.zeros((), x.dtype), padding) if any(p != (0, 0, 0) for p in padding) else x


def _check(counts: Sequence[int]) -> None:
    for count in counts:
        if count < 1:
            raise ShapeError(f"Invalid number of data points ({count}) specified")


def _scaled(x: Array, counts: Sequence[int], norm: str, forward: bool) -> Array:
    """An unscaled transform, scaled by its size or the root of it; inverse ones are scaled by `"backward"`."""
    if norm == "ortho":
        return x / math.sqrt(math.prod(counts))
    return x / math.prod(counts) if (norm == "forward") is forward else x


def _along(kind: lax.FftType, x: Array, dims: Sequence[int], counts: Sequence[int]) -> Array:
    """An unscaled transform along at most three dims, whose results have these sizes; for no elements, no elements."""
    if kind in (lax.FftType.RFFT, lax.FftType.IRFFT):
        index(counts[-1])  # raises for a symbol: jax's derivative takes one for odd
    last = tuple(range(x.ndim - len(dims), x.ndim))
    moved = lax.fft(jnp.moveaxis(x, dims, last), kind, tuple(counts))
    inverse = kind in (lax.FftType.IFFT, lax.FftType.IRFFT)
    return jnp.moveaxis(moved, last, dims) * (math.prod(counts) if inverse else 1)


def _complex(x: Array, dims: Sequence[int], forward: bool) -> Array:
    kind = lax.FftType.FFT if forward else lax.FftType.IFFT
    for start in range(0, len(dims), _AT_ONCE):
        part = dims[start : start + _AT_ONCE]
        x = _along(kind, x, part, [x.shape[d] for d in part])
    return x


def _whole(input: Array, dim: tuple[int, ...], sizes: tuple[int, ...], norm: str, forward: bool) -> Array:
    x = _resized(input, dim, sizes)
    counts = [x.shape[d] for d in dim]
    _check(counts)
    return _scaled(_complex(x, dim, forward), counts, norm, forward) if x.size else x


@_transform_row()
def fft_c2c(input: Array, dim: tuple[int, ...], sizes: tuple[int, ...], norm: str, forward: bool) -> Array:
    """The transform of complex numbers along several dims, or its inverse."""
    return _whole(input, dim, sizes, norm, forward)


@_transform_row(derivative=SAVES)
def fft_r2c(
    input: Array, dim: tuple[int, ...], sizes: tuple[int, ...], norm: str, forward: bool, onesided: bool
) -> Array:
    """The transform of real numbers along several dims, or its inverse; `onesided`, the half that determines it."""
    if not onesided:
        return _whole(input.astype(jnp.result_type(input.dtype, jnp.complex64)), dim, sizes, norm, forward)
    x = _resized(input, dim, sizes)
    counts = [x.shape[d] for d in dim]
    _check(counts)
    if not x.size:
        shape = [n // 2 + 1 if d == dim[-1] else n for d, n in enumerate(x.shape)]
        return jnp.zeros(shape, jnp.result_type(x.dtype, jnp.complex64))
    half = _complex(_along(lax.FftType.RFFT, x, dim[-1:], counts[-1:]), dim[:-1], True)
    return _scaled(half if forward else jnp.conj(half), counts, norm, forward)


@_transform_row()
def fft_c2r(input: Array, dim: tuple[int, ...], sizes: tuple[int, ...], norm: str, forward: bool) -> Array:
    """The real transform along several dims, or its inverse, of the half that determines the other.

    The last size is that of the result, by default an even one.
    """
    last = sizes[-1] if sizes[-1] != -1 else 2 * (input.shape[dim[-1]] - 1)
    _check([last])
    x = _resized(input, dim, (*sizes[:-1], last // 2 + 1))
    counts = [*(x.shape[d] for d in dim[:-1]), last]
    _check(counts)
    if not x.size:
        return jnp.zeros([last if d == dim[-1] else n for d, n in enumerate(x.shape)], x.real.dtype)
    half = _complex(jnp.conj(x) if forward else x, dim[:-1], False)
    return _scaled(_along(lax.FftType.IRFFT, half, dim[-1:], counts[-1:]), counts, norm, forward)
