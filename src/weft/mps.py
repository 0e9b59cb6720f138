"""Metal devices: what there is if jax has been installed with Metal, and `RuntimeError` or nothing otherwise."""

from __future__ import annotations

from weft._devices.device_type import DeviceType, module_of
from weft._devices.streams import Event as Event

_devices = DeviceType("mps")

__getattr__, __dir__ = module_of(_devices, __name__)


def current_allocated_memory() -> int:
    """Bytes of tensors on the device."""
    return _devices.memory_allocated()


def driver_allocated_memory() -> int:
    """Bytes that XLA's allocator has taken from the device."""
    return _devices.memory_reserved()


def recommended_max_memory() -> int:
    """The bytes that the device has."""
    return _devices.mem_get_info()[1]
