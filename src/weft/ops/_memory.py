"""Checks of a result's size, made before a body allocates tables of that size."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache

from weft.errors import ShapeError
from weft.ops._kinds import HostDType
from weft.ops._strides import Layout


@cache
def _memory() -> int:
    """Bytes of this machine's memory; 2**63 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**63


def require_addressable(shape: Sequence[object], itemsize: int) -> int:
    """The bytes of a tensor; `RuntimeError` if int64 cannot count them. Symbolic sizes count as 1."""
    nbytes = math.prod(size for size in shape if isinstance(size, int)) * itemsize
    if nbytes >= 2**63:
        raise ShapeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return nbytes


def require_addressable_places(places: Layout) -> int:
    """The bytes of a storage with this layout; `RuntimeError` if int64 cannot count them, or a size is negative."""
    nbytes = (places.offset + places.extent) * places.dtype.itemsize if places.extent else 0
    if nbytes >= 2**63 or any(size < 0 for size in places.sizes):
        raise ShapeError(
            f"Storage size calculation overflowed with sizes={list(places.sizes)} and strides={list(places.strides)}"
        )
    return nbytes


def require_room(shape: Sequence[int], dtype: HostDType) -> None:
    """Refuse a result larger than this machine's memory, before a body computes positions for all its elements."""
    nbytes = require_addressable(shape, dtype.itemsize)
    if nbytes > _memory():
        raise ShapeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes.")
