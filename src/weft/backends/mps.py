"""Metal devices."""

from __future__ import annotations

from weft._base.device import device
from weft._lazy.runtime import jax_device
from weft.errors import DeviceError


def is_available() -> bool:
    """Whether jax finds a Metal device."""
    try:
        jax_device(device("mps"))
    except DeviceError:
        return False
    return True


is_built = is_available
