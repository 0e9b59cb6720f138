"""Waiting for devices, and their memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from weft._base.device import DeviceLike
from weft._lazy.runtime import finish, memory_of, xla_devices
from weft._tensor.tensor import Tensor
from weft.xla._context import raise_closure_failures
from weft.xla._devices import jax_device_of


class MemoryInfo(TypedDict):
    """The memory of a device in bytes."""

    bytes_used: int
    bytes_limit: int


def get_memory_info(device: DeviceLike | None = None) -> MemoryInfo:
    """The memory of a device, by default of the current one.

    On CPUs, `bytes_used` is that of the arrays on the device, and `bytes_limit` the memory of the host.
    """
    used, limit = memory_of(jax_device_of(device))
    return {"bytes_used": used, "bytes_limit": limit}


def wait_device_ops(devices: Iterable[DeviceLike] = ()) -> None:
    """Wait until devices have computed all that they were given; by default all devices of this process.

    What is recorded and pending is not given to them by this; `mark_step` does that. `RuntimeError` if an asynchronous
    step closure has raised.
    """
    for held in [jax_device_of(one) for one in devices] or xla_devices():
        finish(held)
    raise_closure_failures()


def unlazy(tensors: Iterable[Tensor]) -> None:
    """Wait until these tensors are computed. This is for measurements; programs need not wait."""
    arrays = [tensor._array() for tensor in tensors]
    for array in arrays:
        array.block_until_ready()
