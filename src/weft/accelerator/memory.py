"""Memory of the accelerator's devices, in bytes, as XLA tells it. Without an accelerator there is `RuntimeError`."""

from __future__ import annotations

from weft._base.device import DeviceLike
from weft.accelerator._current import accelerators


def empty_cache() -> None:
    """Does nothing: XLA's allocator keeps memory for later results."""
    accelerators().empty_cache()


def empty_host_cache() -> None:
    """Does nothing: host memory is not kept."""
    accelerators()


def memory_stats(device_index: DeviceLike | None = None, /) -> dict[str, int]:
    """XLA's figures, under PyTorch's names where there are such."""
    return accelerators().memory_stats(device_index)


def memory_allocated(device_index: DeviceLike | None = None, /) -> int:
    """Bytes of tensors."""
    return accelerators().memory_allocated(device_index)


def max_memory_allocated(device_index: DeviceLike | None = None, /) -> int:
    """The largest number of bytes of tensors at one time."""
    return accelerators().max_memory_allocated(device_index)


def memory_reserved(device_index: DeviceLike | None = None, /) -> int:
    """Bytes that XLA's allocator has taken from the device."""
    return accelerators().memory_reserved(device_index)


def max_memory_reserved(device_index: DeviceLike | None = None, /) -> int:
    """The largest number of bytes that XLA's allocator has had at one time."""
    return accelerators().max_memory_reserved(device_index)


def get_memory_info(device_index: DeviceLike | None = None, /) -> tuple[int, int]:
    """The bytes that are free, and those that there are."""
    return accelerators().mem_get_info(device_index)


def reset_peak_memory_stats(device_index: DeviceLike | None = None, /) -> None:
    """Let `max_memory_allocated` count from now on."""
    accelerators().reset_peak_memory_stats(device_index)


def reset_accumulated_memory_stats(device_index: DeviceLike | None = None, /) -> None:
    """Let peaks count from now on; sums count from the start of the process."""
    accelerators().reset_peak_memory_stats(device_index)
