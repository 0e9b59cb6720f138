"""The files of TensorBoard's embedding projector."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import numpy as np

from weft.errors import PreconditionError
from weft.utils.tensorboard._arrays import grid, to_bytes
from weft.utils.tensorboard._protos import Image, tf


def check_embedding(
    points: np.ndarray,
    metadata: Sequence[Any] | None,
    images: np.ndarray | None,
    header: Sequence[str] | None,
) -> None:
    """Raise unless there is a label and an image for each point, if any are given."""
    if points.ndim != 2:
        raise PreconditionError("mat should be 2D, where mat.size(0) is the number of data points")
    if metadata is not None and len(metadata) != len(points):
        raise PreconditionError("#labels should equal with #data points")
    if metadata and header and len(header) != len(metadata[0]):
        raise PreconditionError("len of header must be equal to the number of columns in metadata")
    if images is not None and len(images) != len(points):
        raise PreconditionError("#images should equal with #data points")


def write(
    folder: str,
    points: np.ndarray,
    metadata: Sequence[object] | None,
    images: np.ndarray | None,
    header: Sequence[str] | None,
) -> None:
    """Write points, labels and images into a folder."""
    _make(folder)
    _write(folder, "tensors.tsv", _lines("\t".join(map(str, row)) for row in points.tolist()))
    if metadata is not None:
        rows = ("\t".join(map(str, row)) for row in [header, *metadata]) if header else map(str, metadata)
        _write(folder, "metadata.tsv", _lines(rows))
    if images is not None:
        _write(folder, "sprite.png", _sprite(images))


def write_config(folder: str, text: str) -> None:
    """Write the projector's configuration."""
    _write(folder, "projector_config.pbtxt", text.encode())


def _lines(rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def _sprite(images: np.ndarray) -> bytes:
    """All images in one PNG, on a square grid."""
    side = math.ceil(len(images) ** 0.5)
    missing = np.zeros((side * side - len(images), *images.shape[1:]), images.dtype)
    pixels = to_bytes(grid(np.concatenate([images, missing]), side)).transpose(1, 2, 0)
    with BytesIO() as file:
        Image.fromarray(pixels).save(file, format="PNG")
        return file.getvalue()


def _make(folder: str) -> None:
    files = tf.io.gfile  # for folders that are not local, too
    if not files.exists(folder):
        files.makedirs(folder)
    elif files.isdir(folder):
        warnings.warn("Embedding dir exists, did you set global_step for add_embedding()?", stacklevel=4)
    else:
        raise NotADirectoryError(f"Path: `{folder}` exists, but is a file. Cannot proceed.")


def _write(folder: str, name: str, content: bytes) -> None:
    with tf.io.gfile.GFile(f"{folder}/{name}", "wb") as file:
        file.write(content)
