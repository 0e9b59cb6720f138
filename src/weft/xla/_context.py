"""The state of each device: its index in the replication, and the closures of its step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import weft
from weft._base.device import DeviceLike
from weft._base.device import device as device_class
from weft._lazy.runtime import xla_devices
from weft._tensor.convert import existing
from weft._tensor.tensor import Tensor
from weft.errors import DeviceError, XlaError
from weft.xla._closures import ClosureThread
from weft.xla._devices import get_xla_supported_devices, make_current, parsed, real_name, xla_device, xla_real_devices


class DeviceContext:
    """The state of one device.

    device                              its name, such as "xla:0"
    device_index                        its index among the devices of `set_replication`
    replication                         the devices by hardware that `set_replication` has found
    step_closures, async_step_closures  what runs at the end of the step
    async_closure_handler               the thread of the asynchronous ones; None until there is one
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.device_index = 0
        self.replication: list[str] = []
        self.step_closures: list[Callable[[], object]] = []
        self.async_step_closures: list[Callable[[], object]] = []
        self.async_closure_handler: ClosureThread | None = None


# no cell: a cache, keyed by all that its entries depend on
_DEVICE_CONTEXTS: dict[str, DeviceContext] = {}
_DEVICE_CONTEXTS_LOCK = threading.Lock()


def _get_device_context(device: DeviceLike | None = None) -> DeviceContext:
    """The state of a device, by default of this thread's current one; made at the first call."""
    name = str(xla_device() if device is None else device)
    with _DEVICE_CONTEXTS_LOCK:
        context = _DEVICE_CONTEXTS.get(name)
        if context is None:
            context = _DEVICE_CONTEXTS[name] = DeviceContext(name)
        return context


def _get_all_reduce_token() -> tuple[  # pyright: ignore[reportUnusedFunction]  users import PyTorch's name
    Tensor, DeviceContext
]:
    """A token, which is a zero since collectives are ordered by their recording; and the current device's state."""
    context = _get_device_context()
    return weft.zeros((), device=context.device), context


def raise_closure_failures() -> None:
    """Raise `RuntimeError` if an asynchronous closure of any device has raised since the last call."""
    for context in [*_DEVICE_CONTEXTS.values()]:
        if context.async_closure_handler is not None:
            context.async_closure_handler.raise_failure()


def xla_replication_devices(local_devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """The devices of all processes by hardware, in order of their numbers, among which local devices replicate.

    `local_devices` are all of this process's devices, which is the default; `RuntimeError` for fewer.
    """
    supported = get_xla_supported_devices()
    local = [str(one) for one in local_devices] if local_devices is not None else supported
    real = xla_real_devices(local) if local else []
    kinds = {one.split(":")[0] for one in real}
    if len(kinds) > 1:
        raise DeviceError(f"Cannot replicate across different device types: devices={local}/{real}")
    if len(local) != len(supported):
        raise XlaError(f"Cannot replicate if number of devices ({len(local)}) is different from {len(supported)}")
    return _of_kind(kinds.pop(), [real_name(held) for held in xla_devices(everywhere=True)])


def _of_kind(kind: str, names: Sequence[str]) -> list[str]:
    """The names of one kind of hardware, in order of their numbers."""
    devices: list[tuple[int, str]] = []
    for name in names:
        parts = parsed(name)
        if parts is None:
            raise DeviceError(f"Invalid device format: {name}")
        if parts[0] == kind:
            devices.append((parts[1], name))
    return [name for _, name in sorted(devices)]


def set_replication(device: DeviceLike, devices: Sequence[DeviceLike] | None) -> None:
    """Make a device this thread's current one, and set its index among `devices`, which must be all local ones.

    No devices, or None, end the replication.
    """
    context, names = _get_device_context(device), [str(one) for one in devices or ()]
    if names and context.device not in names:
        raise XlaError(f"set_replication(): device {context.device} is not among the devices {names}")
    context.replication = xla_replication_devices(names) if names else []
    context.device_index = names.index(context.device) if names else 0
    make_current(existing(device_class(context.device)))
