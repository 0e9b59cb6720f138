"""Figures of a device's memory: those of `weft.cuda` and `weft.accelerator`, for any device."""

from __future__ import annotations

from weft._base.device import CPU, DeviceLike, canonical
from weft._base.device import device as Device
from weft._devices import figures
from weft.accelerator import current_accelerator


def target_of(device: DeviceLike | None) -> Device:
    """The device that an argument names: by default the accelerator's current one or, without one, the CPU."""
    return canonical(current_accelerator() or CPU) if device is None else canonical(device)


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """All figures, in bytes, by PyTorch's names or else XLA's."""
    return figures.figures_of(target_of(device))


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Bytes of tensors on a device, and of whatever else keeps arrays there."""
    return memory_stats(device)[figures.CURRENT]


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most bytes at one time: since `reset_peak_memory_stats` or, on the CPU, since one of these was called first.

    On the CPU, a program between whose beginning and end nothing is counted takes what its results take if each is kept
    until its last use.
    """
    return memory_stats(device)[figures.PEAK]


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Bytes that the allocator has taken from the device; on the CPU, those of tensors."""
    return memory_stats(device)[figures.RESERVED]


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most bytes that the allocator has had at one time; on the CPU, the peak of those of tensors."""
    return memory_stats(device)[figures.MOST_RESERVED]


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Let the peak count from now on; before a step, this makes `max_memory_allocated` the peak of the step."""
    figures.reset_peak(target_of(device))


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """The bytes that are free on a device, and those that it has."""
    return figures.free_and_total(target_of(device))


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """The figures as a table; `abbreviated` leaves out those that only XLA has."""
    return figures.summary(target_of(device), abbreviated)
