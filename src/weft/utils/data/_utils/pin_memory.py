"""Batches in page-locked memory, which is any memory here."""

from __future__ import annotations

from typing import Any

from weft._base.device import DeviceLike
from weft._base.types import PyTree
from weft.utils.data._utils.collate import by_leaf


def pin_memory(data: PyTree, device: DeviceLike | None = None) -> PyTree:
    """What `pin_memory()` gives of the tensors in nested containers, and of other objects that have this method."""
    del device
    return by_leaf(data, _pinned)


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf
