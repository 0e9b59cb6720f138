"""CUDA devices, as far as programs ask for them before they start."""

from __future__ import annotations

from typing import Any

from weft._base.device import device
from weft._lazy.runtime import jax_device
from weft.errors import DeviceError
from weft.random import manual_seed


def device_count() -> int:
    """How many CUDA devices jax can use."""
    count = 0
    while True:
        try:
            jax_device(device("cuda", count))
        except DeviceError:
            return count
        count += 1


def is_available() -> bool:
    """Whether there is a CUDA device that jax can use."""
    return device_count() > 0


def manual_seed_all(seed: int) -> Any:
    """Start the default generator anew: its draws are the same on every device."""
    return manual_seed(seed)
