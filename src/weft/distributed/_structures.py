"""Tensors in nested containers."""

from __future__ import annotations

from weft._base.device import DeviceLike
from weft._base.guards import is_dict, is_list_or_tuple
from weft._base.types import PyTree
from weft._tensor.tensor import Tensor


def moved(structure: PyTree, device: DeviceLike) -> PyTree:
    """An object with its tensors moved to a device, also within dicts, lists and (named) tuples."""
    if isinstance(structure, Tensor):
        return structure.to(device)
    if is_dict(structure):
        return {key: moved(value, device) for key, value in structure.items()}
    if is_list_or_tuple(structure):
        items = [moved(item, device) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return structure
