"""Tensors in nested containers."""

from __future__ import annotations

from typing import Any

from weft._base.device import DeviceLike
from weft._tensor.tensor import Tensor


def moved(structure: Any, device: DeviceLike) -> Any:
    """An object with its tensors moved to a device, also within dicts, lists and (named) tuples."""
    if isinstance(structure, Tensor):
        return structure.to(device)
    if isinstance(structure, dict):
        return {key: moved(value, device) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        items = [moved(item, device) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return structure
