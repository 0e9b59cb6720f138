"""Samples into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft._base.dtype import float64
from weft._tensor.convert import from_host, tensor
from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ShapeError


def default_collate(batch: Sequence[Any]) -> Any:
    """Tensors, arrays and numbers stacked along a new first dim; dicts and sequences of them by entry.

    Strings and bytes are kept as a list. `TypeError` for anything else.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return op.stack(list(batch), 0)
    if isinstance(first, np.ndarray):
        return from_host(np.stack(batch))
    if isinstance(first, np.generic):
        return from_host(np.asarray(batch))
    if isinstance(first, float):
        return tensor(list(batch), dtype=float64)
    if isinstance(first, int):
        return tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        found = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return found if type(first) is dict else type(first)(found)  # pyright: ignore[reportCallIssue]
    if isinstance(first, Sequence):
        return _by_entry(first, batch)
    raise ArgumentError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )


def _by_entry(first: Any, batch: Sequence[Any]) -> Any:
    if any(len(sample) != len(first) for sample in batch):
        raise ShapeError("each element in list of batch should be of equal size")
    entries = [default_collate(entry) for entry in zip(*batch, strict=True)]
    return type(first)(*entries) if hasattr(first, "_fields") else entries


def default_convert(data: Any) -> Any:
    """Arrays as tensors, within dicts and sequences, too; what is not batched is converted so."""
    if isinstance(data, (np.ndarray, np.generic)):
        return from_host(np.asarray(data))
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, (list, tuple)):
        return [default_convert(item) for item in data]
    return data
