"""Padding, rearranging and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from weft.errors import OutOfRangeError, ShapeError, UnsupportedCallError, UnsupportedShapeError
from weft.ops._dims import Factors, Sizes, Static, require_sizes
from weft.ops._kinds import Array, Scalar, Shape
from weft.ops._memory import require_room
from weft.ops._neural import like, require_float, require_space
from weft.ops._reduce import wide
from weft.ops._resize import MODES, resized
from weft.ops._rows import alias
from weft.ops._table import ACCELERATOR_IN_FLOAT32, INTERNAL, NO_ARITHMETIC, Derivative, Public, defop


def _space_whole(shapes: Sequence[Sizes]) -> Factors:
    """Batch and channels may be split; all other dims may change size, and are whole."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters[2:]))


def _padded_whole(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Padded dims, counted from the last, are whole."""
    letters = tuple(range(len(shapes[0])))
    depth = min(len(static["pad"]) // 2, len(letters))
    return Factors((letters,), (letters,), frozenset(letters[len(letters) - depth :]))


def _check_pad(input: Array, pad: Shape, mode: str) -> None:
    if len(pad) % 2:
        raise ShapeError("Padding length must be divisible by 2")
    if len(pad) > 2 * input.ndim:
        raise ShapeError(
            "Padding length should be less than or equal to two times the input dimension "
            f"but got padding length {len(pad)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return
    if mode not in ("reflect", "replicate", "circular"):
        raise UnsupportedCallError(f"Unrecognised padding mode {mode}")
    if len(pad) not in (2, 4, 6) or input.ndim - len(pad) // 2 not in (1, 2):
        raise UnsupportedShapeError(
            f"Padding size {len(pad)} is not supported for {input.ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    if mode != "circular":
        require_space(input, len(pad) // 2)


def _check_source(input: Array, dim: int, before: int, after: int, mode: str) -> None:
    size = input.shape[dim]
    if mode == "reflect" and max(before, after) >= size:
        raise ShapeError(
            f"Argument #{2 * (input.ndim - dim) + 2}: Padding size should be less than the corresponding input "
            f"dimension, but got: padding ({before}, {after}) at dimension {dim} of input {list(input.shape)}"
        )
    if mode == "circular" and max(before, after) > size:
        raise ShapeError("Padding value causes wrapping around more than once.")
    if mode == "circular" and size + min(before, 0) + min(after, 0) < (before > 0 or after > 0):
        raise OutOfRangeError("Negative padding value is resulting in an empty dimension")


def _check_padded(sizes: Sequence[int], amounts: Sequence[tuple[int, int]]) -> None:
    """Require an element in each dim that is reflected or replicated."""
    output_sizes = [size + before + after for size, (before, after) in zip(sizes, amounts, strict=True)]
    if max(output_sizes) < 1:
        words = "DHW"[3 - len(output_sizes) :]
        input_text, output_text = (
            [f"{word}: {size}" for word, size in zip(words, of, strict=True)] for of in (sizes, output_sizes)
        )
        raise OutOfRangeError(
            f"input ({', '.join(input_text)}) is too small. Calculated output {' '.join(output_text)}"
        )
    require_sizes(output_sizes)


@defop(derivative=Derivative(name="ConstantPadNd"), types=NO_ARITHMETIC, dims=_padded_whole, public=INTERNAL)
def pad(input: Array, pad: Shape, mode: str = "constant", value: Scalar | None = None) -> Array:
    """The last dims extended, or cut by negative amounts. `pad` has pairs (before, after), last dim first."""
    _check_pad(input, pad, mode)
    amounts = [(0, 0)] * input.ndim
    for back in range(len(pad) // 2):
        amounts[input.ndim - 1 - back] = (pad[2 * back], pad[2 * back + 1])
    if mode == "constant":
        if any(size + min(a, 0) + min(b, 0) < 0 for size, (a, b) in zip(input.shape, amounts, strict=True)):
            raise OutOfRangeError("narrow(): length must be non-negative.")
        fill = like(0 if value is None else value, input)
        return jax.lax.pad(input, fill, [(a, b, 0) for a, b in amounts])
    if value is not None:
        raise ShapeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    for dim, (before, after) in enumerate(amounts):
        if before or after:
            _check_source(input, dim, before, after, mode)
    if mode != "circular":
        _check_padded(input.shape[input.ndim - len(pad) // 2 :], amounts[input.ndim - len(pad) // 2 :])
    x = input
    for dim, (before, after) in enumerate(amounts):
        if before or after:
            x = _repad(x, dim, before, after, mode)
    return x


_JAX_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _repad(x: Array, dim: int, before: int, after: int, mode: str) -> Array:
    """One dim padded with its own elements."""
    if min(before, after) >= 0:
        amounts = [(0, 0)] * x.ndim
        amounts[dim] = (before, after)
        return jnp.pad(x, amounts, mode=_JAX_MODES[mode])
    size = x.shape[dim]
    at = np.arange(-before, size + after)
    if mode == "replicate":
        at = np.clip(at, 0, size - 1)
    elif mode == "reflect":
        at = size - 1 - np.abs(size - 1 - np.abs(at))
    else:  # circular: what is left after the cut wraps around
        left = np.arange(max(-before, 0), size - max(-after, 0))
        at = np.pad(left, (max(before, 0), max(after, 0)), mode="wrap")
    return jnp.take(x, at, axis=dim)


def _image_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters[-3:]))


def _check_shuffle(input: Array, factor: int, name: str, word: str) -> None:
    if input.ndim < 3:
        raise ShapeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    if factor <= 0:
        raise ShapeError(f"{name} expects a positive {word}, but got {factor}")


@defop(types=NO_ARITHMETIC, dims=_image_dims, public=Public(method="", also=("nn.functional",)))
def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """(..., C r r, H, W) as (..., C, H r, W r)."""
    r = upscale_factor
    _check_shuffle(input, r, "pixel_shuffle", "upscale_factor")
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise ShapeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    x = input.reshape(*lead, channels // (r * r), r, r, height, width)
    n = len(lead)
    x = x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*lead, channels // (r * r), height * r, width * r)


@defop(types=NO_ARITHMETIC, dims=_image_dims, public=Public(method="", also=("nn.functional",)))
def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """(..., C, H r, W r) as (..., C r r, H, W)."""
    r = downscale_factor
    _check_shuffle(input, r, "pixel_unshuffle", "downscale_factor")
    *lead, channels, height, width = input.shape
    for name, size, at in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise ShapeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, "
                f"but input.size({at})={size} is not divisible by {r}"
            )
    x = input.reshape(*lead, channels, height // r, r, width // r, r)
    n = len(lead)
    x = x.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*lead, channels * r * r, height // r, width // r)


@defop(types=NO_ARITHMETIC, dims=_image_dims, public=Public(method="", also=("nn.functional",)))
def channel_shuffle(input: Array, groups: int) -> Array:
    """Channels dealt out over `groups`: (batch, g, C / g, ...) with the two middle dims swapped."""
    if input.ndim < 3:
        raise ShapeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise ShapeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if input.shape[1] % groups:
        raise ShapeError(
            f"Number of channels must be divisible by groups. Got {input.shape[1]} channels and {groups} groups."
        )
    x = input.reshape(input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    return jnp.swapaxes(x, 1, 2).reshape(input.shape)


alias(channel_shuffle, "native_channel_shuffle")


def _check_resized(shape: Sequence[int], size: Sequence[int]) -> None:
    """Require non-empty inputs and outputs; only the batch may be empty."""
    sizes = shape[2:]
    if min(*sizes, *size) <= 0:
        words = "DHW"[3 - len(size) :]
        input_text, output_text = (
            ", ".join(f"{w}: {s}" for w, s in zip(words, of, strict=True)) for of in (sizes, size)
        )
        raise ShapeError(
            f"Input and output sizes should be greater than 0, but got input ({input_text}) "
            f"{'and ' if len(size) == 1 else ''}output ({output_text})"
        )
    if shape[1] == 0:
        raise ShapeError(f"Non-empty {len(shape)}D data tensor expected but got a tensor with sizes {list(shape)}")


def _as_float(input: Array) -> Array:
    """What is interpolated: floats, and of integers the bytes of images."""
    if input.dtype == jnp.uint8:
        return input.astype(jnp.float32)
    require_float(input, "compute_indices_weights")
    return wide(input)


@defop("interpolate_to", dims=_space_whole, types=ACCELERATOR_IN_FLOAT32, public=INTERNAL)
def interpolate(
    input: Array, size: Shape, mode: str, align_corners: bool = False, scales: tuple[float, ...] | None = None
) -> Array:
    """Images resized to `size`, dim by dim. Positions follow from `scales` where given, else from the sizes."""
    taps_of, ndim = MODES[mode]
    space = input.ndim - 2
    if ndim not in (0, space):
        raise UnsupportedShapeError(f"Got {input.ndim}D input, but {mode} mode needs {ndim + 2}D input")
    _check_resized(input.shape, size)
    require_room((*input.shape[:2], *size), input.dtype)
    x = _as_float(input) if ndim else input
    for i, (before, after) in enumerate(zip(input.shape[2:], size, strict=True)):
        scale = None if scales is None else scales[i]
        # A scale that was given, and is not that of the sizes, moves the positions even where the size stays.
        if before != after or scale not in (None, 1.0):
            x = resized(x, i + 2, taps_of(before, after, scale, align_corners))
    if x.dtype != input.dtype and input.dtype == jnp.uint8:
        x = jnp.clip(jnp.floor(x + 0.5), 0, 255)
    return x.astype(input.dtype)
