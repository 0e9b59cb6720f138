"""The names of devices: `xla:0`, `xla:1`, … are the devices of this process that jax uses by default."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax

from weft._base.device import DeviceLike, current_index, set_current_index
from weft._base.device import device as device_class
from weft._base.guards import is_a
from weft._base.site import warn_user
from weft._lazy.runtime import xla_devices
from weft._tensor.convert import existing
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DeviceError, IndexRangeError
from weft.xla._flags import flag
from weft.xla._lazy_property import LazyProperty

_DEVICE = re.compile(r"xla:(\d+)")
_REAL = re.compile(r"([A-Z]+):(\d+)")
_DEVKIND = "`devkind` argument is deprecated and will be removed in a future release."


def is_xla_tensor(tensor: Tensor) -> bool:
    """Whether a tensor is on an XLA device: `tensor.device.type` is "xla"."""
    return tensor.device.type == "xla"


def xla_device(n: int | None = None, devkind: str | None = None) -> device_class:
    """The XLA device with this index, which becomes the current one of this thread; without an index the current one.

    With `XLA_USE_SPMD=1` it is always `xla:0`. `devkind` is deprecated. `IndexError` if there is no such device.
    """
    # As in PyTorch/XLA: with SPMD there is one virtual device, whose tensors `mark_sharding` splits over all real ones.
    if flag("XLA_USE_SPMD"):
        return make_current(device_class("xla", 0))
    if n is None and not devkind:
        return existing(device_class("xla", current_index("xla")))
    devices = get_xla_supported_devices(devkind)
    if not devices:
        raise DeviceError(f"this process has no {devkind} devices: its devices are {real_devices()}")
    index = n or 0
    if not is_a(index, int):
        raise ArgumentError(f"xla_device(): argument 'n' must be int, not {type(index).__name__}")
    if not 0 <= index < len(devices):
        raise IndexRangeError(f"Device index {n} out of range in {devices}")
    return make_current(device_class(devices[index]))


def make_current(target: device_class) -> device_class:
    """Make an XLA device the one that `xla` without an index means in this thread; returns it."""
    set_current_index("xla", target.index or 0)
    return target


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    """The XLA devices of this process: `["xla:0", "xla:1", …]`, at most `max_devices`.

    `devkind` is deprecated: it selects those whose hardware has this name, such as "TPU", and returns None if there are
    none.
    """
    real = real_devices()
    names = [f"xla:{index}" for index in range(len(real))]
    if devkind:
        warn_user(_DEVKIND)
        kind = re.compile(re.escape(devkind) + r":\d+")
        names = [name for name, one in zip(names, real, strict=True) if kind.fullmatch(one)]
        if not names:
            return None  # pyright: ignore[reportReturnType]  as in PyTorch/XLA, whose callers test for it
    return names[:max_devices]


def real_devices() -> list[str]:
    """The devices of this process by the names of their hardware: `["CPU:0"]`."""
    return [real_name(held) for held in xla_devices()]


def real_name(held: jax.Device) -> str:
    """The name of a jax device by its hardware, with its number among those of all processes."""
    number = xla_devices(everywhere=True).index(held)
    return f"{'CUDA' if held.platform == 'gpu' else held.platform.upper()}:{number}"


def xla_real_devices(devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """The names by hardware of some XLA devices, by default of all: `["CUDA:0", "CUDA:1"]`."""
    return [_xla_real_device(one) for one in devices or get_xla_supported_devices()]


def _xla_real_device(device: DeviceLike) -> str:
    """The name by hardware of one XLA device; `RuntimeError` for any other device."""
    match = _DEVICE.fullmatch(str(device))
    if match is None:
        raise DeviceError(f"Invalid device format: {device}")
    real, index = real_devices(), int(match[1])
    if index >= len(real):
        raise DeviceError(f"Invalid device format: {device}; this process has {len(real)} XLA device(s), from xla:0 on")
    return real[index]


def xla_device_hw(device: DeviceLike) -> str:
    """The hardware of an XLA device, for "xla" of the current one: "CPU", "CUDA" or "TPU"."""
    return _xla_real_device(xla_device() if str(device) == "xla" else device).split(":")[0]


def jax_device_of(device: DeviceLike | None) -> jax.Device:
    """The jax device of an XLA device, by default of the current one."""
    target = xla_device() if device is None else existing(device)
    if target.type != "xla":
        raise DeviceError(f"Invalid device format: {target}")
    return xla_devices()[target.index or 0]


def parsed(device: str) -> tuple[str, int] | None:
    """The parts of a name by hardware: `("CUDA", 1)` for "CUDA:1"; None for anything else."""
    match = _REAL.fullmatch(device)
    return None if match is None else (match[1], int(match[2]))


def parse_xla_device(device: str) -> tuple[str, int] | None:
    """Deprecated: the parts of a device's name by hardware."""
    warn_user("xla_model.parse_xla_device() will be removed in release 2.7.")
    if not is_a(device, str):
        raise ArgumentError(f"parse_xla_device(): expected str, got {type(device).__name__}")
    return parsed(device)


# no cell: a cache, keyed by all that its entries depend on
_DEVICES = LazyProperty(real_devices)


# --- the names of the package itself ---------------------------------------------------------------------------------


def device(index: int | None = None) -> device_class:
    """The XLA device with this index, by default the current one."""
    return xla_device(index)


def devices() -> list[device_class]:
    """The XLA devices of this process."""
    return [device_class(name) for name in get_xla_supported_devices()]


def device_count() -> int:
    """The number of XLA devices of this process."""
    return len(xla_devices())
