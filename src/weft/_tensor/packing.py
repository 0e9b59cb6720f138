"""Sequences of different lengths: the packed layout, which has no padding, and the padded one.

Packed, the elements of all sequences at one time lie side by side, and times follow each other; sequences are sorted
from the longest to the shortest. `batch_sizes` says how many there are at each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._tensor.codegen import op
from weft._tensor.convert import from_numpy_array, room_like
from weft._tensor.tensor import Tensor

Lengths = np.ndarray[Any, Any]


def conjugate(sizes: Lengths) -> Lengths:
    """The batch sizes of lengths, or the lengths of batch sizes, both in falling order: how many exceed 0, 1, …"""
    return (sizes > np.arange(int(sizes[0]))[:, None]).sum(1)


def _on_device_of(array: Lengths, tensor: Tensor) -> Any:
    """An array as a tensor on the device of another one."""
    return from_numpy_array(array).to(tensor.device)


def lengths_on_device_of(batch_sizes: Any, tensor: Tensor) -> Any:
    """Lengths as a tensor on the device of another one, from batch sizes as a tensor."""
    return _on_device_of(conjugate(batch_sizes.numpy()), tensor)


def padded_rows(
    rows: Sequence[np.ndarray[Any, Any]], width: int, filling: float, side: str = "right"
) -> np.ndarray[Any, Any]:
    """Arrays (length, …) as one (rows, width, …), padded on one side, in memory that becomes a tensor without a copy.

    In NumPy, because data come in ever other lengths, and XLA would compile a program for each combination.
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
    """(time, batch): whether a sequence has this step."""
    return np.arange(int(batch_sizes[0])) < batch_sizes[:, None]
