"""Sequences of different lengths: the packed layout, which has no padding, and the padded one.

In the packed layout, the elements of all sequences at one time are adjacent, and times follow each other. Sequences are
sorted, with the longest first. `batch_sizes` has the number of sequences at each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.types import Arg
from weft._lazy.aligned import room_like
from weft._tensor.codegen import op
from weft._tensor.convert import from_numpy_array
from weft._tensor.tensor import Tensor

Lengths = np.ndarray


def conjugate(sizes: Lengths) -> Lengths:
    """From lengths to batch sizes or back, both in descending order: the number of entries above 0, above 1, …"""
    return (sizes > np.arange(int(sizes[0]))[:, None]).sum(1)


def _on_device_of(array: Lengths, tensor: Tensor) -> Tensor:
    """An array as a tensor on the device of `tensor`."""
    return from_numpy_array(array).to(tensor.device)


def lengths_on_device_of(batch_sizes: Arg, tensor: Tensor) -> Tensor:
    """The lengths of sequences as a tensor on the device of `tensor`, from a tensor of batch sizes."""
    return _on_device_of(conjugate(batch_sizes._host()), tensor)


def padded_rows(rows: Sequence[np.ndarray], width: int, filling: float, side: str = "right") -> np.ndarray:
    """Arrays (length, …) padded on one side to (rows, width, …), in memory that becomes a tensor without a copy.

    It uses NumPy, because lengths always vary, and XLA would compile a program for each combination.
    """
    result = room_like((len(rows), width, *rows[0].shape[1:]), rows[0].dtype)
    result[...] = filling
    for place, row in zip(result, rows, strict=True):
        place[slice(len(row)) if side == "right" else slice(width - len(row), width)] = row
    return result


def pack(padded: Tensor, batch_sizes: Lengths) -> Tensor:
    """(time, batch, …) to (elements, …)."""
    rows = np.flatnonzero(_present(batch_sizes))
    return op.index_select(op.flatten(padded, 0, 1), 0, _on_device_of(rows, padded))


def unpack(data: Tensor, batch_sizes: Lengths) -> Tensor:
    """(elements, …) to (time, batch, …), with zeros where a sequence has no element."""
    first = np.cumsum(batch_sizes) - batch_sizes
    at = np.minimum(np.arange(int(batch_sizes[0])), batch_sizes[:, None] - 1) + first[:, None]
    padded = op.unflatten(op.index_select(data, 0, _on_device_of(at.ravel(), data)), 0, at.shape)
    return fill(padded, batch_sizes, 0)


def fill(padded: Tensor, batch_sizes: Lengths, value: float) -> Tensor:
    """A padded tensor (time, batch, …) with `value` where a sequence has no element."""
    missing = ~_present(batch_sizes)
    return op.masked_fill(
        padded, _on_device_of(missing.reshape(*missing.shape, *(1,) * (padded.ndim - 2)), padded), value
    )


def _present(batch_sizes: Lengths) -> Lengths:
    """Whether a sequence has an element at a time: (time, batch)."""
    return np.arange(int(batch_sizes[0])) < batch_sizes[:, None]
