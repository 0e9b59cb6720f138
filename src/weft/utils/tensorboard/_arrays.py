"""Logged data as NumPy arrays: images as (height, width, channel), figures, and frames of videos."""

from __future__ import annotations

import math
import sys
from importlib import import_module

import numpy as np

from weft._base.dtype import bfloat16
from weft._base.types import Arg
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, UnsupportedDTypeError, ValueRangeError


def to_numpy(x: Arg) -> np.ndarray:
    """A tensor's elements, an array unchanged, or a number as an array of one element."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, Tensor):
        plain = x.detach()
        return (plain.float() if plain.dtype is bfloat16 else plain)._host()
    if np.isscalar(x):
        return np.array([x])
    raise UnsupportedDTypeError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def to_bytes(image: np.ndarray) -> np.ndarray:
    """An image's intensities as `uint8`; floats from 0 to 1 are multiplied by 255 and clipped."""
    return image if image.dtype == np.uint8 else (image.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)


def grid(images: np.ndarray, columns: int = 8) -> np.ndarray:
    """Images (number, 1 or 3, height, width) in a grid, as one image (3, height, width)."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise PreconditionError(
            f"expected images of shape (number, 1 or 3 channels, height, width), got {tuple(images.shape)}"
        )
    number, _, height, width = images.shape
    columns = min(number, columns)
    rows = math.ceil(number / columns) if number else 0
    canvas = np.zeros((3, height * rows, width * columns), images.dtype)
    for at, image in enumerate(images):
        y, x = divmod(at, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return canvas


def to_hwc(image: np.ndarray, dataformats: str) -> np.ndarray:
    """An image, or a grid of images, as (height, width, channel). `dataformats` has a letter of NCHW for each dim."""
    letters = dataformats.upper()
    if len(set(letters)) != len(letters):
        raise PreconditionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if image.ndim != len(letters):
        raise PreconditionError(
            f"size of input tensor and input format are different. tensor shape: {tuple(image.shape)}, "
            f"input_format: {dataformats}"
        )
    order = {4: "NCHW", 3: "HWC", 2: "HW"}.get(len(letters))
    if order is None or set(order) != set(letters):
        raise ValueRangeError(f"dataformats has the letters NCHW, CHW or HW in any order, got {dataformats!r}")
    ordered = image.transpose([letters.index(letter) for letter in order])
    if len(letters) == 4:
        return grid(ordered).transpose(1, 2, 0)
    if len(letters) == 2:
        ordered = ordered[..., None]
    return ordered.repeat(3, axis=2) if ordered.shape[2] == 1 else ordered


def figures_to_images(figures: Arg, close: bool) -> np.ndarray:
    """A matplotlib figure as (channel, height, width); a list of figures with a first dim for the number."""
    if isinstance(figures, list):
        return np.stack([figures_to_images(figure, close) for figure in figures])
    canvas = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figures)
    canvas.draw()
    image = np.array(canvas.buffer_rgba())[:, :, :3].transpose(2, 0, 1)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if close and pyplot is not None:  # if pyplot is not imported, no figure is open
        pyplot.close(figures)
    return image


def frames(videos: np.ndarray) -> np.ndarray:
    """Videos (number, time, channel, height, width) in a grid, as one video (time, height, width, channel)."""
    if videos.ndim != 5 or not videos.size:
        raise ValueRangeError(
            f"expected videos of shape (number, time, channel, height, width), got {tuple(videos.shape)}"
        )
    number, time, channels, height, width = videos.shape
    places = 1 << (number - 1).bit_length()
    rows = 1 << ((number.bit_length() - 1) // 2)
    padded = np.concatenate([videos, np.zeros((places - number, *videos.shape[1:]), videos.dtype)])
    tiled = padded.reshape(rows, places // rows, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return tiled.reshape(time, rows * height, places // rows * width, channels)
