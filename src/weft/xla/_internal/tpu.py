"""How many TPUs there are."""

from __future__ import annotations

from weft._devices.device_type import DeviceType


def num_available_devices() -> int:
    """The number of TPU cores of this host; 0 without a TPU."""
    return DeviceType("tpu").device_count()


num_available_chips = num_available_devices
