"""Which accelerator there is, and which of its devices is current."""

from __future__ import annotations

import warnings
from functools import cache

from weft._base.device import DeviceLike
from weft._base.device import device as Device
from weft._base.dtype import DTYPES
from weft._base.types import Json
from weft._devices.device_type import DeviceType
from weft._devices.streams import Stream
from weft.errors import DeviceError

_KINDS = ("cuda", "tpu", "mps")


@cache
def _available() -> DeviceType | None:
    """The type of devices that jax has, or None if it has none but CPUs."""
    return next((devices for devices in map(DeviceType, _KINDS) if devices.is_available()), None)


def accelerators() -> DeviceType:
    """The functions of the accelerator's type; `RuntimeError` if there is none."""
    devices = _available()
    if devices is None:
        raise DeviceError("Cannot access accelerator device when none is available.")
    return devices


def current_accelerator(check_available: bool = False) -> Device | None:
    """The type of the accelerator as a device without an index, or None without one."""
    del check_available  # those that are not available are none
    devices = _available()
    return None if devices is None else Device(devices.kind)


def is_available() -> bool:
    """Whether there is an accelerator."""
    return _available() is not None


def device_count() -> int:
    """The number of the accelerator's devices; 0 without one."""
    devices = _available()
    return 0 if devices is None else devices.device_count()


def current_device_index() -> int:
    """The index of the current device."""
    return accelerators().current_device()


def set_device_index(device: DeviceLike, /) -> None:
    """Make a device the current one in this thread; a negative index has no effect."""
    accelerators().set_device(device)


def current_device_idx() -> int:
    """The older name of `current_device_index`."""
    warnings.warn("Use `current_device_index` instead.", FutureWarning, stacklevel=2)
    return current_device_index()


def set_device_idx(device: DeviceLike, /) -> None:
    """The older name of `set_device_index`."""
    warnings.warn("Use `set_device_index` instead.", FutureWarning, stacklevel=2)
    set_device_index(device)


def current_stream(device: DeviceLike | None = None, /) -> Stream:
    """The one stream of a device, by default of the current one."""
    return accelerators().current_stream(device)


def set_stream(stream: Stream) -> None:
    """Make the stream's device the current one."""
    accelerators().set_stream(stream)


def synchronize(device: DeviceLike | None = None, /) -> None:
    """Wait until a device, by default the current one, has finished all its computations."""
    accelerators().synchronize(device)


def get_device_capability(device: DeviceLike | None = None, /) -> dict[str, Json]:
    """The element types of tensors on the device, as the set `supported_dtypes`."""
    devices = accelerators()
    devices.held(devices.index_of(device, optional=True))
    return {"supported_dtypes": set(DTYPES)}


class device_index:
    """A block in which the device with this index is current; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self.idx = device
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx is not None:
            set_device_index(self.prev_idx)
