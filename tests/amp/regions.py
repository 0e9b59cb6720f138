"""Regions of any type of device on the CPU: a row's class is a property of the table, not of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft._base.autocast import DTYPE_INDEX, Autocast
from weft._base.state import using


@contextmanager
def region(device_type: str, dtype: Any = None) -> Iterator[None]:
    """In the block, tensors are cast as if they were on a device of this type."""
    dtypes = list(Autocast().dtypes)
    if dtype is not None:
        dtypes[DTYPE_INDEX[device_type]] = dtype
    with using(autocast=Autocast(frozenset({device_type}), tuple(dtypes), as_if=device_type)):
        yield
