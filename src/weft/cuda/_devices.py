"""CUDA devices: which exist, and which one `cuda` means in this thread."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft._base.device import DeviceLike
from weft._devices.device_type import DeviceContext, DeviceType

_devices = DeviceType("cuda")

current_device = _devices.current_device
current_stream = _devices.current_stream
default_stream = _devices.default_stream
device_count = _devices.device_count
device_of = _devices.device_of
empty_cache = _devices.empty_cache
get_device_capability = _devices.get_device_capability
get_device_name = _devices.get_device_name
get_device_properties = _devices.get_device_properties
get_rng_state = _devices.get_rng_state
get_rng_state_all = _devices.get_rng_state_all
init = _devices.init
initial_seed = _devices.initial_seed
is_available = _devices.is_available
is_initialized = _devices.is_initialized
manual_seed = _devices.manual_seed
manual_seed_all = _devices.manual_seed_all
max_memory_allocated = _devices.max_memory_allocated
max_memory_reserved = _devices.max_memory_reserved
mem_get_info = _devices.mem_get_info
memory_allocated = _devices.memory_allocated
memory_reserved = _devices.memory_reserved
memory_stats = _devices.memory_stats
reset_peak_memory_stats = _devices.reset_peak_memory_stats
seed = _devices.seed
seed_all = _devices.seed_all
set_device = _devices.set_device
set_rng_state = _devices.set_rng_state
set_rng_state_all = _devices.set_rng_state_all
set_stream = _devices.set_stream
stream = _devices.stream
synchronize = _devices.synchronize


class device(DeviceContext):
    """A block in which `cuda` means this device; a negative index has no effect."""

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(_devices, _devices.index_of(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a CUDA device; all of them support bfloat16."""
    del including_emulation
    return is_available()


def get_arch_list() -> list[str]:
    """Nothing: XLA compiles for the device that is there."""
    return []


def ipc_collect() -> None:
    """Does nothing: no memory of the device is shared between processes."""


def is_current_stream_capturing() -> bool:
    """False: XLA captures what it repeats by itself."""
    return False


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """XLA's figures of a device's memory, a line for each."""
    del abbreviated
    return "\n".join(f"{name:<32} {value:>16,}" for name, value in memory_stats(device).items())


def __getattr__(name: str) -> Any:
    if name == "amp":
        return import_module("weft.cuda.amp")
    raise AttributeError(
        f"module 'weft.cuda' has no attribute {name!r}: graphs, captures and allocators are XLA's own affair"
    )
