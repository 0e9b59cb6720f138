"""CUDA devices: which exist, and which one `cuda` means in this thread."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from weft._base.device import DeviceLike
from weft._base.device import current as _current
from weft._base.device import device as _Device
from weft._lazy.realize import flush_pending as _flush_pending
from weft._lazy.runtime import finish as _finish
from weft._lazy.runtime import jax_device as _jax_device
from weft.errors import DeviceError as _DeviceError
from weft.errors import ValueRangeError as _ValueRangeError
from weft.random import manual_seed as _manual_seed


def device_count() -> int:
    """The number of CUDA devices that jax can use."""
    count = 0
    while True:
        try:
            _jax_device(_Device("cuda", count))
        except _DeviceError:
            return count
        count += 1


def is_available() -> bool:
    """Whether there is a CUDA device that jax can use."""
    return device_count() > 0


def set_device(device: DeviceLike) -> None:
    """Let `cuda` mean this device in this thread; a negative index has no effect. `RuntimeError` if there is none."""
    index = _index_of(device)
    if index >= 0:
        _held(index)
        _current.cuda = index


def current_device() -> int:
    """The index of the device that `cuda` means in this thread."""
    _held(_current.cuda)
    return _current.cuda


class device:
    """A context in which `cuda` means this device; a negative index has no effect."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _current.cuda
        set_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        _current.cuda = self.prev_idx


def synchronize(device: Any = None) -> None:
    """Wait until the device has finished all its computations."""
    held = _held(_index_of(device, optional=True))
    _flush_pending()
    _finish(held)


def get_device_name(device: Any = None) -> str:
    """The vendor's name of the device."""
    return _held(_index_of(device, optional=True)).device_kind


def is_bf16_supported() -> bool:
    """Whether there is a CUDA device; all of them support bfloat16."""
    return is_available()


def empty_cache() -> None:
    """Does nothing: XLA's allocator keeps memory for later results."""


def memory_allocated(device: Any = None) -> int:
    """Bytes of tensors on the device; 0 without one."""
    return _memory(device, "bytes_in_use")


def max_memory_allocated(device: Any = None) -> int:
    """The largest number of bytes allocated at one time; 0 without a device."""
    return _memory(device, "peak_bytes_in_use")


def manual_seed(seed: int) -> None:
    """Restart the default generator; its draws are the same on every device."""
    _manual_seed(seed)


manual_seed_all = manual_seed


def _memory(device: Any, name: str) -> int:
    if not is_available():
        return 0
    return (_held(_index_of(device, optional=True)).memory_stats() or {}).get(name, 0)


def _held(index: int) -> Any:
    """The jax device; `RuntimeError` if there is none."""
    return _jax_device(_Device("cuda", index))


def _index_of(device: Any, *, optional: bool = False) -> int:
    """The index of a device, given as a device, a name or an index; None means the current one, if `optional`."""
    if optional and device is None:
        return _current.cuda
    if isinstance(device, int):
        return device
    if not isinstance(device, (str, _Device)):
        raise _ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    target = _Device(device)
    if target.type != "cuda":
        raise _ValueRangeError(f"Expected a cuda device, but got: {target}")
    if target.index is None and not optional:
        raise _ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return _current.cuda if target.index is None else target.index


def __getattr__(name: str) -> Any:
    if name == "amp":
        return import_module("weft.cuda.amp")
    raise AttributeError(
        f"module 'weft.cuda' has no attribute {name!r}: streams, events and memory are XLA's own affair; there are "
        f"{', '.join(__dir__())}"
    )


def __dir__() -> list[str]:
    defined = vars(sys.modules[__name__]).items()
    return sorted(
        name for name, value in defined if getattr(value, "__module__", "") == __name__ and not name.startswith("_")
    )
