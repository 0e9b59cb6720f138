"""Where the elements of a resized image come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from weft._base.numpy_guards import NUMPY_NUMBER
from weft._base.types import Arg
from weft.errors import ArgumentError, OutOfRangeError, UnsupportedShapeError, ValueRangeError
from weft.ops._kinds import Array, HostArray, Scalar, Shape

Taps = list[tuple[Array, Array | None]]  # source positions and weights, both for every output position


def _step(size: int, count: int, scale: float | None) -> Array:
    """How far apart output positions are, in input positions. A number of sizes is computed in the program."""
    return jnp.asarray(1 / scale, jnp.float64) if scale else _number(size) / _number(count)


def _number(size: Scalar) -> Array:
    return jnp.asarray(size, jnp.float64)


def _positions(count: int) -> Array:
    return jnp.arange(count).astype(jnp.float64)


def _sources(size: int, count: int, scale: float | None, align: bool) -> Array:
    """Where each output position lies among the input positions."""
    if align:
        return _positions(count) * (_number(size - 1) / _number(count - 1) if count > 1 else 0.0)
    return (_positions(count) + 0.5) * _step(size, count, scale) - 0.5


def _whole(at: Array, size: int) -> Array:
    return jnp.clip(at.astype(jnp.int64), 0, size - 1)


def _nearest(size: int, count: int, scale: float | None, align: bool) -> Taps:
    del align
    step = _step(size, count, scale).astype(jnp.float32).astype(jnp.float64)
    return [(_whole(jnp.floor(_positions(count) * step), size), None)]


def _nearest_exact(size: int, count: int, scale: float | None, align: bool) -> Taps:
    del align
    step = _step(size, count, scale).astype(jnp.float32).astype(jnp.float64)
    return [(_whole(jnp.floor((_positions(count) + 0.5) * step), size), None)]


def _linear(size: int, count: int, scale: float | None, align: bool) -> Taps:
    at = jnp.maximum(_sources(size, count, scale, align), 0)
    low = _whole(at, size)
    part = jnp.clip(at - low, 0, 1)
    return [(low, 1 - part), (jnp.minimum(low + 1, size - 1), part)]


def keys(d: Array, near: bool) -> Array:
    """Keys' cubic convolution kernel (a = -3/4) at distances up to 1 (`near`), or from 1 to 2."""
    return (1.25 * d - 2.25) * d * d + 1 if near else ((-0.75 * d + 3.75) * d - 6) * d + 3


def _cubic(size: int, count: int, scale: float | None, align: bool) -> Taps:
    """Weights of Keys' kernel for the four positions around each source position."""
    at = _sources(size, count, scale, align)
    low = jnp.floor(at).astype(jnp.int64)
    taps: Taps = []
    for offset in (-1, 0, 1, 2):
        weight = keys(jnp.abs(at - low - offset), offset in (0, 1))
        taps.append((jnp.clip(low + offset, 0, size - 1), weight))
    return taps


MODES: dict[str, tuple[Callable[..., Taps], int]] = {  # taps, and the number of spatial dims or 0 for any
    "nearest": (_nearest, 0),
    "nearest-exact": (_nearest_exact, 0),
    "linear": (_linear, 1),
    "bilinear": (_linear, 2),
    "trilinear": (_linear, 3),
    "bicubic": (_cubic, 2),
}


def resized(x: Array, axis: int, taps: Taps) -> Array:
    """Weighted sum of the elements at the taps."""
    shape = (-1,) + (1,) * (x.ndim - 1 - axis)
    total = None
    for at, weight in taps:
        part = jnp.take(x, at, axis=axis, mode="clip")
        part = part if weight is None else part * weight.reshape(shape).astype(x.dtype)
        total = part if total is None else total + part
    assert total is not None, "a mode without taps"
    return total


def output_sizes(
    sizes: Shape, size: Arg, scale_factor: Arg, modes: Sequence[str], mode: str
) -> tuple[Shape, tuple[float, ...] | None]:
    """Sizes after `interpolate`, and its scale factors if these were given."""
    if (size is None) == (scale_factor is None):
        which = "either" if size is None else "only one of"
        raise ValueRangeError(f"{which} size or scale_factor should be defined")
    if mode not in modes or len(sizes) not in (1, 2, 3):
        raise UnsupportedShapeError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported "
            f"(got {len(sizes) + 2}D) for the modes: {' | '.join(modes)} (got {mode})"
        )
    argument = size if scale_factor is None else scale_factor
    values = (argument,) * len(sizes) if isinstance(argument, (int, float, NUMPY_NUMBER)) else tuple(argument)
    if len(values) != len(sizes):
        kind, noun = ("output size", "size") if scale_factor is None else ("scale_factor", "factors")
        raise ValueRangeError(
            "Input and output must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {list(sizes)} and {kind} of {argument}. Please give one {noun} entry per spatial dim"
        )
    if scale_factor is None:
        if not all(map(_is_integer, values)):
            raise ArgumentError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got size "
                f"with types {[type(v) for v in values]}"
            )
        return tuple(int(v) for v in values), None
    scales = tuple(float(v) for v in values)
    result = tuple(math.floor(s * f) for s, f in zip(sizes, scales, strict=True))
    if any(abs(n) >= 2**63 for n in result):
        raise OutOfRangeError("value cannot be converted to type int64_t without overflow")
    return result, scales


def _is_integer(value: object) -> bool:
    """Whether it is an integer: Python's, NumPy's, or a tensor of an integer type."""
    return hasattr(value, "__index__") and not getattr(getattr(value, "dtype", None), "is_floating_point", False)


# --- with antialiasing: an output element is a mean over all input elements near it, and not over a fixed number


def _triangle(x: HostArray) -> HostArray:
    return np.maximum(1 - np.abs(x), 0)


def _smooth_cubic(x: HostArray) -> HostArray:
    """Keys' cubic convolution kernel with a = -1/2, as Pillow has it."""
    d = np.abs(x)
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d < 1, (1.5 * d - 2.5) * d * d + 1, np.where(d < 2, far, 0))


def _lanczos(x: HostArray) -> HostArray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


SMOOTH_MODES: dict[str, tuple[Callable[[HostArray], HostArray], int]] = {  # the kernel, and how far from 0 it ends
    "bilinear": (_triangle, 1),
    "bicubic": (_smooth_cubic, 2),
    "lanczos": (_lanczos, 3),
}


def smooth_weights(size: int, count: int, scale: float | None, align: bool, mode: str) -> HostArray:
    """The weights (outputs, inputs) by which an axis is resized. Where it shrinks, the kernel is as much wider."""
    kernel, reach = SMOOTH_MODES[mode]
    step = 1 / scale if scale else size / count
    if align:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    width = max(step, 1.0)
    centers = step * (np.arange(count)[:, None] + 0.5)
    first = np.maximum((centers - reach * width + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + reach * width + 0.5).astype(np.int64), size)
    places = np.arange(size)
    weights = kernel((places - centers + 0.5) / width) * ((places >= first) & (places < last))
    total = weights.sum(1, keepdims=True)
    return weights / np.where(total == 0, 1, total)
